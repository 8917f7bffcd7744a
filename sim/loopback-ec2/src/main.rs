//! The loopback EC2 as a program: a seeded market on the wall clock and on 127.0.0.1, in the foreground until it is stopped.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;
use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{DEFAULT_TEMPLATE, Loopback, LoopbackClock, Region, RegionOptions};
use forebay_sim::market::Market;

/// The length of the market before it repeats.
const MARKET: Span = Span::mins(30 * 24 * 60);

/// An EC2 on 127.0.0.1, with stock-outs, moving spot prices, interruption warnings and reclaims.
#[derive(clap::Parser)]
struct Args {
    /// The port; a free one by default
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// The seed of the market and of all random draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// All types are in stock, nothing is reclaimed, no rate limits
    #[arg(long)]
    calm: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let loopback = match Loopback::start_on(Region::new(options(&args)), LoopbackClock::Wall, args.port) {
        Ok(loopback) => loopback,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", vary(&loopback));
    // A signal ends the process.
    loop {
        std::thread::park();
    }
}

/// A typical day: 90 % of the reclaims have a warning, EC2's rate limits apply, describe calls are up to 5 s stale, and each spot pool has a
/// market of its own.
fn options(args: &Args) -> RegionOptions {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let origin = Timestamp(u64::try_from(since.as_millis()).unwrap_or(0));
    let calm = RegionOptions { seed: args.seed, origin, ..RegionOptions::default() };
    if args.calm {
        return calm;
    }
    let pairs = calm.types.iter().flat_map(|t| calm.zones.iter().map(|z| (t.instance_type.clone(), z.clone())));
    let pairs: Vec<(String, String)> = pairs.collect();
    RegionOptions {
        market: Market::seeded(args.seed, &pairs, MARKET.0),
        depth: Some(20),
        rate_limits: true,
        max_staleness: Span::secs(5),
        warning_permille: 900,
        rebalance_permille: 500,
        ..calm
    }
}

fn vary(loopback: &Loopback) -> String {
    let (url, queue) = (loopback.url(), loopback.queue_url());
    format!(
        "\
The loopback EC2 listens at {url}; any key id and secret are accepted.
Its launch template is {DEFAULT_TEMPLATE}; its warnings are sent to the queue {queue}.
The metadata of an instance: {url}/i-ID/latest/meta-data/ (with a token from {url}/i-ID/latest/api/token)

Control requests: curl {url}/control/help
  curl -X POST '{url}/control/reclaim?instance=i-ID&notice=120'

For the environment of the AWS command line and the SDKs:
AWS_ENDPOINT_URL={url} AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
Ctrl-C stops it, and its instances are gone. More: sim/loopback-ec2/README.md"
    )
}
