//! `forebay-kubelet KUBECONFIG NODE [FOREBAY]`: plays the kubelet of one node until its input closes.
//!
//! Never: anything beyond what the library does.

use std::io::Read;
use std::process::ExitCode;

use forebay_kubelet::{Kubelet, KubeletOptions};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(kubeconfig), Some(node)) = (arguments.next(), arguments.next()) else {
        eprintln!("write: forebay-kubelet KUBECONFIG NODE [FOREBAY]");
        return ExitCode::FAILURE;
    };
    let options = KubeletOptions { forebay: arguments.next().map(Into::into), ..KubeletOptions::new(kubeconfig, node) };
    match Kubelet::start(options) {
        Ok(kubelet) => {
            println!("ready");
            // Whatever ends it, there is no more of it.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            drop(kubelet);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
