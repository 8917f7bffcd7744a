//! The way to SQS: region, credentials, TLS.
//!
//! Never: retries by itself (who calls knows what a second try costs), or waits long for a machine's metadata that is not there.

use crate::settings::{Settings, region_of};
use crate::trouble::{Kind, Trouble};
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::identity::IdentityCache;
use aws_config::imds::{self, region::ImdsRegionProvider};
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::ProfileFileRegionProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::SharedHttpClient;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use std::time::Duration;

/// How long a connection may take. A machine's metadata answers within milliseconds or is not there.
const CONNECT: Duration = Duration::from_secs(3);
/// For all of a look-up in the machine's metadata.
const METADATA: Duration = Duration::from_secs(3);
/// For all of a look-up of credentials, with an assumed role's call.
const CREDENTIALS: Duration = Duration::from_secs(10);

/// The way to SQS, with where its credentials come from.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub client: Client,
    pub credentials: SharedCredentialsProvider,
    pub region: String,
}

/// Finds the way. Talks to the machine's metadata at most.
///
/// # Errors
/// There is no region.
pub(crate) async fn find(settings: &Settings) -> Result<Way, Trouble> {
    let http = http(settings);
    let providers = ProviderConfig::without_region().with_http_client(http.clone());
    let metadata = imds::Client::builder()
        .configure(&providers)
        .max_attempts(2)
        .connect_timeout(Duration::from_secs(1))
        .read_timeout(Duration::from_secs(1))
        .operation_timeout(METADATA)
        .build();
    let region = region(settings, &providers, metadata.clone()).await.ok_or_else(|| {
        let why = "sqs: no region is known; give `region` in the configuration, or set AWS_REGION";
        Trouble::new(Kind::Credentials, why)
    })?;
    let credentials = match &settings.keys {
        Some(keys) => SharedCredentialsProvider::new(Credentials::new(
            keys.access_key_id.clone(),
            keys.secret_access_key.clone(),
            keys.session_token.clone(),
            None,
            "configuration",
        )),
        None => {
            let chain = DefaultCredentialsChain::builder().configure(providers).region(region.clone());
            SharedCredentialsProvider::new(chain.imds_client(metadata).build().await)
        }
    };
    let shared = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .region(region.clone())
        .credentials_provider(credentials.clone())
        .identity_cache(IdentityCache::lazy().load_timeout(CREDENTIALS).build())
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT).build())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .load()
        .await;
    let mut config = aws_sdk_sqs::config::Builder::from(&shared);
    config.set_endpoint_url(settings.endpoint.clone().or_else(|| shared.endpoint_url().map(str::to_owned)));
    Ok(Way { client: Client::from_conf(config.build()), credentials, region: region.as_ref().to_owned() })
}

/// Plain HTTP where nothing needs TLS: a machine without root certificates can still reach an endpoint beside it.
fn http(settings: &Settings) -> SharedHttpClient {
    let plain = settings.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    if plain && settings.keys.is_some() {
        return Builder::new().build_http();
    }
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}

async fn region(settings: &Settings, providers: &ProviderConfig, metadata: imds::Client) -> Option<Region> {
    let given =
        settings.region.clone().or_else(|| settings.queues.iter().find_map(|q| region_of(q)).map(str::to_owned));
    if let Some(given) = given {
        return Some(Region::new(given));
    }
    let profile = ProfileFileRegionProvider::builder().configure(providers).build();
    let machine = ImdsRegionProvider::builder().configure(providers).imds_client(metadata).build();
    let chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new());
    chain.or_else(profile).or_else(machine).region().await
}
