//! The loopback EC2 with AWS's own clients, without retries.

mod ec2;
mod faults;
mod messages;
mod metadata;

use aws_sdk_ec2::config::retry::RetryConfig;
use aws_sdk_ec2::config::{BehaviorVersion, Credentials, Region as Place};
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use forebay_kernel::units::Span;
use forebay_loopback_ec2::{Loopback, LoopbackClock, Region, RegionOptions, VirtualClock};

/// A region that listens, the clock that it goes by, and a client of each kind.
struct Stage {
    clock: VirtualClock,
    loopback: Loopback,
    ec2: aws_sdk_ec2::Client,
    sqs: aws_sdk_sqs::Client,
}

impl Stage {
    fn new(options: RegionOptions) -> Stage {
        let clock = VirtualClock::new(options.origin);
        let loopback = Loopback::start(Region::new(options), LoopbackClock::Virtual(clock.clone())).unwrap();
        let http = aws_smithy_http_client::Builder::new().build_http();
        let keys = Credentials::new("test", "test", None, None, "a test");
        let ec2 = aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Place::new("us-east-1"))
            .endpoint_url(loopback.url())
            .credentials_provider(keys.clone())
            .http_client(http.clone())
            .retry_config(RetryConfig::disabled())
            .build();
        let sqs = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Place::new("us-east-1"))
            .endpoint_url(loopback.url())
            .credentials_provider(keys)
            .http_client(http)
            .retry_config(RetryConfig::disabled())
            .build();
        Stage { clock, loopback, ec2: aws_sdk_ec2::Client::from_conf(ec2), sqs: aws_sdk_sqs::Client::from_conf(sqs) }
    }

    fn calm() -> Stage {
        Stage::new(RegionOptions::default())
    }

    /// Advances the time.
    fn pass(&self, span: Span) {
        self.clock.set(self.clock.now() + span);
    }
}

/// The error code, as the client parses it.
fn code<T: std::fmt::Debug, E: ProvideErrorMetadata + std::fmt::Debug>(
    outcome: Result<T, SdkError<E, impl std::fmt::Debug>>,
) -> String {
    let error = outcome.expect_err("an error");
    error.code().map_or_else(|| format!("{error:?}"), str::to_owned)
}
