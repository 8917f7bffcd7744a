//! Finding the way: region, credentials, TLS.
//!
//! Never: retries by itself (who calls knows what a second try costs), or waits long for a machine's metadata that is not there.

use crate::place::Place;
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
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use std::time::Duration;

/// How long a connection may take. A machine's metadata answers within milliseconds or is not there.
const CONNECT: Duration = Duration::from_secs(3);
/// For all of a look-up in the machine's metadata.
const METADATA: Duration = Duration::from_secs(3);
/// For all of a look-up of credentials, with an assumed role's call.
const CREDENTIALS: Duration = Duration::from_secs(10);

/// The way to AWS, with where its credentials come from.
#[derive(Clone, Debug)]
pub struct Way {
    /// What an adapter makes its client from: `aws_sdk_sqs::config::Builder::from(&way.shared)`, then `set_endpoint_url` with
    /// [`Way::endpoint`]. Retries are off, and no call has a time limit of its own.
    pub shared: SdkConfig,
    /// Who gives the credentials.
    pub credentials: SharedCredentialsProvider,
    /// The region that was found.
    pub region: String,
    /// Another endpoint than AWS's: the configured one, else that of `AWS_ENDPOINT_URL` or the profile.
    pub endpoint: Option<String>,
}

/// Nobody says which region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no region is known; give `region` in the configuration, or set AWS_REGION")]
pub struct NoRegion;

/// Finds the way. Talks to the machine's metadata at most.
///
/// # Errors
/// There is no region.
pub async fn find(place: &Place) -> Result<Way, NoRegion> {
    let http = http(place);
    let providers = ProviderConfig::without_region().with_http_client(http.clone());
    let metadata = imds::Client::builder()
        .configure(&providers)
        .max_attempts(2)
        .connect_timeout(Duration::from_secs(1))
        .read_timeout(Duration::from_secs(1))
        .operation_timeout(METADATA)
        .build();
    let region = region(place, &providers, metadata.clone()).await.ok_or(NoRegion)?;
    let credentials = match &place.keys {
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
    let endpoint = place.endpoint.clone().or_else(|| shared.endpoint_url().map(str::to_owned));
    Ok(Way { shared, credentials, region: region.as_ref().to_owned(), endpoint })
}

/// Plain HTTP where nothing needs TLS: a machine without root certificates can still reach an endpoint beside it.
fn http(place: &Place) -> SharedHttpClient {
    let plain = place.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    if plain && place.keys.is_some() {
        return Builder::new().build_http();
    }
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}

async fn region(place: &Place, providers: &ProviderConfig, metadata: imds::Client) -> Option<Region> {
    if let Some(given) = &place.region {
        return Some(Region::new(given.clone()));
    }
    let profile = ProfileFileRegionProvider::builder().configure(providers).build();
    let machine = ImdsRegionProvider::builder().configure(providers).imds_client(metadata).build();
    let chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new());
    chain.or_else(profile).or_else(machine).region().await
}
