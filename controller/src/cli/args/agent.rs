//! The words of what runs on nodes and in pods: `forebay agent`, `forebay gate`.
//!
//! Never: behaviour. Defaults that have a reason name it.

use super::span;
use clap::Args;
use forebay_node_agent::GpuSource;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `forebay agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The controller. Not needed with `--once`.
    #[arg(long, env = "FOREBAY_SERVER", value_name = "URL", required_unless_present = "once", value_parser = crate::cli::server::http_url)]
    pub controller: Option<String>,
    /// The instance's metadata.
    #[arg(long, default_value = "http://169.254.169.254", value_name = "URL")]
    pub metadata: String,
    /// File with the token for the controller, read anew for each report. Default: the variable FOREBAY_TOKEN, else none.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Where it reads what GPUs do: nvml, nvml=LIBRARY, dcgm=http://HOST:PORT or none.
    #[arg(long, default_value = "nvml", value_name = "SOURCE")]
    pub gpus: GpuSource,
    /// The node's processes.
    #[arg(long, default_value = "/proc", value_name = "FOLDER")]
    pub proc: PathBuf,
    /// The kubelet's folder.
    #[arg(long, default_value = "/var/lib/kubelet", value_name = "FOLDER")]
    pub kubelet: PathBuf,
    /// Where to serve its own metrics, such as 127.0.0.1:9109. Default: nowhere.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Print what it sees of GPUs and workers, and end.
    #[arg(long)]
    pub once: bool,
}

/// `forebay gate`.
#[derive(Debug, Args)]
pub struct GateArgs {
    /// The file that opens the gate.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Fail after this time. Default: never; the controller ends a pod that waits in vain.
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub timeout: Option<Duration>,
}
