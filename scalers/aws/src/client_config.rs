//! Loads the region, the credentials and TLS into a configuration that an SDK client is made from.
//!
//! Nothing is retried here, and a machine without instance metadata is not waited for longer than 3 s.

use crate::settings::AwsSettings;
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

/// The time limit for a connection. Instance metadata is answered within milliseconds or not at all.
const CONNECT: Duration = Duration::from_secs(3);
/// The time limit for one look-up in the instance metadata.
const METADATA: Duration = Duration::from_secs(3);
/// The time limit for loading credentials, including the call that assumes a role.
const CREDENTIALS: Duration = Duration::from_secs(10);

/// What an adapter makes its AWS client from.
#[derive(Clone, Debug)]
pub struct AwsClientConfig {
    /// The SDK's configuration: `aws_sdk_sqs::config::Builder::from(&config.sdk)`, then `set_endpoint_url` with
    /// [`AwsClientConfig::endpoint`]. Retries are off, and no call has a time limit of its own.
    pub sdk: SdkConfig,
    /// Where the credentials come from.
    pub credentials: SharedCredentialsProvider,
    /// The region, as configured or as found.
    pub region: String,
    /// An endpoint other than AWS's own: the configured one, else that of `AWS_ENDPOINT_URL` or the profile.
    pub endpoint: Option<String>,
}

/// No region is configured, and neither the environment, the profile nor the machine has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no region is known; give `region` in the configuration, or set AWS_REGION")]
pub struct NoRegion;

/// Loads the configuration of a client. The only network access is to the instance metadata, and only for what is not configured.
///
/// # Errors
/// No region was found.
pub async fn load_client_config(settings: &AwsSettings) -> Result<AwsClientConfig, NoRegion> {
    let http = http(settings);
    let providers = ProviderConfig::without_region().with_http_client(http.clone());
    let metadata = imds::Client::builder()
        .configure(&providers)
        .max_attempts(2)
        .connect_timeout(Duration::from_secs(1))
        .read_timeout(Duration::from_secs(1))
        .operation_timeout(METADATA)
        .build();
    let region = region(settings, &providers, metadata.clone()).await.ok_or(NoRegion)?;
    let credentials = match &settings.access_key {
        Some(key) => SharedCredentialsProvider::new(Credentials::new(
            key.access_key_id.clone(),
            key.secret_access_key.clone(),
            key.session_token.clone(),
            None,
            "configuration",
        )),
        None => {
            let error_chain = DefaultCredentialsChain::builder().configure(providers).region(region.clone());
            SharedCredentialsProvider::new(error_chain.imds_client(metadata).build().await)
        }
    };
    let sdk = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .region(region.clone())
        .credentials_provider(credentials.clone())
        .identity_cache(IdentityCache::lazy().load_timeout(CREDENTIALS).build())
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().connect_timeout(CONNECT).build())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .load()
        .await;
    let endpoint = settings.endpoint.clone().or_else(|| sdk.endpoint_url().map(str::to_owned));
    Ok(AwsClientConfig { sdk, credentials, region: region.as_ref().to_owned(), endpoint })
}

/// A client for plain HTTP where nothing needs TLS, so that a machine without root certificates can reach a local endpoint.
fn http(settings: &AwsSettings) -> SharedHttpClient {
    let plain = settings.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    if plain && settings.access_key.is_some() {
        return Builder::new().build_http();
    }
    Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}

async fn region(settings: &AwsSettings, providers: &ProviderConfig, metadata: imds::Client) -> Option<Region> {
    if let Some(given) = &settings.region {
        return Some(Region::new(given.clone()));
    }
    let profile = ProfileFileRegionProvider::builder().configure(providers).build();
    let machine = ImdsRegionProvider::builder().configure(providers).imds_client(metadata).build();
    let error_chain = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new());
    error_chain.or_else(profile).or_else(machine).region().await
}
