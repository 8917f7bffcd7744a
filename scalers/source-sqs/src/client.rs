//! The way to SQS: that to AWS, and a client on it.
//!
//! Never: another way than `forebay-aws` finds.

use crate::settings::{Settings, region_of};
use crate::trouble::{Kind, Trouble};
use aws_sdk_sqs::Client;
use forebay_aws::Place;

/// The way to SQS, with where its credentials come from.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub client: Client,
    pub aws: forebay_aws::Way,
}

/// Finds the way. Talks to the machine's metadata at most.
///
/// # Errors
/// There is no region.
pub(crate) async fn find(settings: &Settings) -> Result<Way, Trouble> {
    let of_queue = || settings.queues.iter().find_map(|queue| region_of(queue)).map(str::to_owned);
    let place = Place {
        region: settings.region.clone().or_else(of_queue),
        endpoint: settings.endpoint.clone(),
        keys: settings.keys.clone(),
    };
    let found = forebay_aws::find(&place).await;
    let aws = found.map_err(|error| Trouble::new(Kind::Credentials, format!("sqs: {error}")))?;
    let mut config = aws_sdk_sqs::config::Builder::from(&aws.shared);
    config.set_endpoint_url(aws.endpoint.clone());
    Ok(Way { client: Client::from_conf(config.build()), aws })
}
