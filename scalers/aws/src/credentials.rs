//! Describes for `forebay doctor` where credentials come from, without showing any part of them.

use crate::call_error::error_chain;
use crate::client_config::AwsClientConfig;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::ProvideCredentials;
use std::time::Duration;

/// Loads the credentials, for at most 10 s, and describes where they come from and how long they last.
///
/// # Errors
/// There are none. The text says why and what to do.
pub async fn describe_credentials(config: &AwsClientConfig) -> Result<String, String> {
    let loaded = tokio::time::timeout(Duration::from_secs(10), config.credentials.provide_credentials()).await;
    match loaded {
        Ok(Ok(found)) => {
            let kind = found.get_property::<Vec<AwsCredentialFeature>>().and_then(|all| all.last().map(kind));
            let kind = kind.unwrap_or("from the configuration or the usual chain");
            let lasting = if found.expiry().is_some() { "temporary, renewed by the chain" } else { "permanent" };
            Ok(format!("found, {kind}, {lasting}"))
        }
        Ok(Err(error)) => Err(format!(
            "none were found ({}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a role, or the keys in the configuration",
            error_chain(&error)
        )),
        Err(_) => Err("none were found within 10 s; check the network to the service that provides them".to_owned()),
    }
}

fn kind(feature: &AwsCredentialFeature) -> &'static str {
    match feature {
        AwsCredentialFeature::CredentialsEnvVars => "from the environment",
        AwsCredentialFeature::CredentialsImds => "from the machine's role",
        AwsCredentialFeature::CredentialsHttp => "from the container's role",
        AwsCredentialFeature::CredentialsStsAssumeRoleWebId | AwsCredentialFeature::CredentialsEnvVarsStsWebIdToken => {
            "from a web identity"
        }
        AwsCredentialFeature::CredentialsStsAssumeRole => "from an assumed role",
        AwsCredentialFeature::CredentialsProfile | AwsCredentialFeature::CredentialsProfileSourceProfile => {
            "from a profile"
        }
        AwsCredentialFeature::CredentialsProcess | AwsCredentialFeature::CredentialsProfileProcess => {
            "from a profile's process"
        }
        _ => "from the usual chain",
    }
}
