//! `forebay-kubelet KUBECONFIG NODE|--label=LABEL [FOREBAY]`: plays the kubelet of one node, or of each node with a label, until its input closes.
//!
//! Never: anything beyond what the library does.

use std::io::Read;
use std::process::ExitCode;

use forebay_kubelet::{Kubelet, KubeletOptions, KubeletSet};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(kubeconfig), Some(node)) = (arguments.next(), arguments.next()) else {
        eprintln!("write: forebay-kubelet KUBECONFIG NODE|--label=LABEL [FOREBAY]");
        return ExitCode::FAILURE;
    };
    let options =
        KubeletOptions { forebay: arguments.next().map(Into::into), ..KubeletOptions::new(kubeconfig, &node) };
    let started = match node.strip_prefix("--label=") {
        Some(label) => Ok((None, Some(KubeletSet::follow(label, options)))),
        None => Kubelet::start(options).map(|kubelet| (Some(kubelet), None)),
    };
    match started {
        Ok(started) => {
            println!("ready");
            // Whatever ends it, there is no more of it.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(started);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
