//! The loopback EC2 as a program: a seeded market on the wall clock, in the foreground, until it is ended.
//!
//! Never: a port beyond 127.0.0.1.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_engine::units::{Millis, Span};
use forebay_loopback_ec2::{Clock, DEFAULT_TEMPLATE, Loopback, Region, RegionOptions};
use forebay_sim::market::Market;

const HELP: &str = "\
An EC2 on 127.0.0.1, with stock-outs, moving spot prices, warnings and reclaims.

forebay-loopback-ec2 [--port PORT] [--seed N] [--calm]

--port PORT   where it listens; a free port where it is not given
--seed N      what the market and every chance are drawn from; 1 where it is not given
--calm        everything is there, nothing is taken back, no rates
--help        this
";

/// How long the drawn market is before it repeats.
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
        Err(what) => {
            eprintln!("{what}; --help says what there is");
            return ExitCode::from(2);
        }
    };
    let loopback = match Loopback::start_on(Region::new(options(&args)), Clock::Wall, args.port) {
        Ok(loopback) => loopback,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("{}", about(&loopback));
    // Nothing wakes it: a signal ends the process.
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
            other => return Err(format!("`{other}` is not known")),
        }
    }
    Ok(Some(args))
}

/// A day like any other: nine reclaims of ten announced, EC2's rates, describes up to 5 s behind; every spot pool with a market of its own.
fn options(args: &Args) -> RegionOptions {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let origin = Millis(u64::try_from(since.as_millis()).unwrap_or(0));
    let calm = RegionOptions { seed: args.seed, origin, ..RegionOptions::default() };
    if args.calm {
        return calm;
    }
    let pairs = calm.types.iter().flat_map(|t| calm.zones.iter().map(|z| (t.instance_type.clone(), z.clone())));
    let pairs: Vec<(String, String)> = pairs.collect();
    RegionOptions {
        market: Market::seeded(args.seed, &pairs, MARKET.0),
        depth: Some(20),
        rates: true,
        stale: Span::secs(5),
        warning_permille: 900,
        rebalance_permille: 500,
        ..calm
    }
}

fn about(loopback: &Loopback) -> String {
    let (url, queue) = (loopback.url(), loopback.queue_url());
    format!(
        "\
The loopback EC2 listens at {url}; any key id and secret will do.
Its launch template is called {DEFAULT_TEMPLATE}; its warnings go to the queue {queue}.
An instance's metadata: {url}/i-ID/latest/meta-data/ (a token first, from {url}/i-ID/latest/api/token)

By hand: curl {url}/control/help
  curl -X POST '{url}/control/reclaim?instance=i-ID&notice=120'

In the environment of AWS's own command line, and of what reads it:
AWS_ENDPOINT_URL={url} AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
Ctrl-C ends it, and what it holds is gone. More: sim/loopback-ec2/README.md"
    )
}
