//! Connects to SQS with what `forebay-aws` finds out about region, credentials and TLS.

use crate::call_failure::{CallFailure, FailureKind};
use crate::settings::{SqsSettings, region_of};
use aws_sdk_sqs::Client;
use forebay_aws::AwsSettings;

/// A client of SQS, with the configuration that it was made from.
#[derive(Clone, Debug)]
pub(crate) struct SqsConnection {
    pub client: Client,
    pub aws: forebay_aws::AwsClientConfig,
}

/// Makes a client. The only network access is to the instance metadata, and only for what is not configured.
///
/// # Errors
/// No region was found.
pub(crate) async fn connect(settings: &SqsSettings) -> Result<SqsConnection, CallFailure> {
    let of_queue = || settings.queues.iter().find_map(|queue| region_of(queue)).map(str::to_owned);
    let aws = AwsSettings { region: settings.aws.region.clone().or_else(of_queue), ..settings.aws.clone() };
    let found = forebay_aws::load_client_config(&aws).await;
    let aws = found.map_err(|error| CallFailure::new(FailureKind::BadCredentials, format!("sqs: {error}")))?;
    let mut config = aws_sdk_sqs::config::Builder::from(&aws.sdk);
    config.set_endpoint_url(aws.endpoint.clone());
    Ok(SqsConnection { client: Client::from_conf(config.build()), aws })
}
