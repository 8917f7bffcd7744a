//! Where credentials come from, in words for a doctor.
//!
//! Never: a key, or a part of one.

use crate::answer::chain;
use crate::way::Way;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::ProvideCredentials;
use std::time::Duration;

/// Looks for credentials and says what was found, or why there are none. Within 10 s.
///
/// # Errors
/// There are none: why, and what to do.
pub async fn describe(way: &Way) -> Result<String, String> {
    let looked = tokio::time::timeout(Duration::from_secs(10), way.credentials.provide_credentials()).await;
    match looked {
        Ok(Ok(found)) => {
            let kind = found.get_property::<Vec<AwsCredentialFeature>>().and_then(|all| all.last().map(kind));
            let kind = kind.unwrap_or("from the configuration or the usual chain");
            let lasting = if found.expiry().is_some() { "temporary, renewed by the chain" } else { "without an end" };
            Ok(format!("found, {kind}, {lasting}"))
        }
        Ok(Err(error)) => Err(format!(
            "none were found ({}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a role, or the keys in the configuration",
            chain(&error)
        )),
        Err(_) => Err("none were found within 10 s; check the network to the place that gives them".to_owned()),
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
