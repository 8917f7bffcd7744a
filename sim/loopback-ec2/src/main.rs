//! The loopback EC2 as a program: a seeded market on the wall clock and on 127.0.0.1, in the foreground until it is stopped.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_kernel::units::{Span, Timestamp};
use forebay_loopback_ec2::{DEFAULT_TEMPLATE, Loopback, LoopbackClock, Region, RegionOptions};
use forebay_sim::market::Market;

const HELP: &str = "\
An EC2 on 127.0.0.1, with stock-outs, moving spot prices, interruption warnings and reclaims.

forebay-loopback-ec2 [--port PORT] [--seed N] [--calm]

--port PORT   the port; a free one by default
--seed N      the seed of the market and of all random draws; 1 by default
--calm        all types are in stock, nothing is reclaimed, no rate limits
--help        this text
";

/// The length of the market before it repeats.
const MARKET: Span = Span::mins(30 * 24 * 60);

struct Args {
    port: u16,
    seed: u64,
    calm: bool,
}

fn main() -> ExitCode {
    let args = match read(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}; see --help");
            return ExitCode::from(2);
        }
    };
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

fn read(mut words: impl Iterator<Item = String>) -> Result<Option<Args>, String> {
    let mut args = Args { port: 0, seed: 1, calm: false };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--port" => args.port = value()?.parse().map_err(|_| "--port needs a number up to 65535".to_owned())?,
            "--seed" => args.seed = value()?.parse().map_err(|_| "--seed needs a number".to_owned())?,
            "--calm" => args.calm = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument `{other}`")),
        }
    }
    Ok(Some(args))
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
