//! Checkpoints in S3: metadata with S3's own checksums, lists, and small reads. Nothing is written or retried, and a `403` is never taken
//! for a missing file.

use crate::error::{CheckError, CheckpointRefusal, StoreUnavailable};
use crate::manifest::{FOLDER, ManifestName};
use crate::settings::{CheckpointSettingsError, CheckpointTimeouts, S3Settings};
use crate::store::{Lookup, NOT_THERE, NewestManifests, StoredObject, with_timeout};
use aws_sdk_s3::Client;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::types::ChecksumMode;
use forebay_aws::{AwsClientConfig, CallError, FailureKind, classify_code, error_chain, truncate};
use sha2::{Digest, Sha256};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// The number of keys per page of a list: S3's maximum.
const PAGE: i32 = 1000;

/// A connection to S3, which is set up once.
#[derive(Debug)]
pub(crate) struct S3 {
    settings: S3Settings,
    /// The name and prefix of each bucket that may be used. Empty: all buckets.
    allowed: Vec<(String, String)>,
    timeouts: CheckpointTimeouts,
    connection: OnceCell<(Client, AwsClientConfig)>,
}

/// A bucket with a prefix.
#[derive(Clone, Debug)]
pub(crate) struct S3Prefix {
    s3: Arc<S3>,
    name: Arc<str>,
    prefix: Arc<str>,
}

impl S3 {
    pub fn new(settings: S3Settings, timeouts: CheckpointTimeouts) -> Result<S3, CheckpointSettingsError> {
        let allowed = settings.allowed()?;
        Ok(S3 { settings, allowed, timeouts, connection: OnceCell::new() })
    }

    /// The buckets of the settings, each with its prefix.
    pub fn named(self: &Arc<S3>) -> impl Iterator<Item = S3Prefix> {
        self.allowed.iter().map(|(name, prefix)| self.at(name, prefix))
    }

    /// The client, and the configuration that it was made from.
    pub async fn connection(&self) -> Result<&(Client, AwsClientConfig), StoreUnavailable> {
        self.connection
            .get_or_try_init(|| async {
                let connection = forebay_aws::load_client_config(&self.settings.aws)
                    .await
                    .map_err(|e| StoreUnavailable::new(format!("s3: {e}")))?;
                let mut config = aws_sdk_s3::config::Builder::from(&connection.sdk);
                config.set_endpoint_url(connection.endpoint.clone());
                // Only AWS resolves host names that start with the name of a bucket.
                config.set_force_path_style(Some(connection.endpoint.is_some()));
                Ok((Client::from_conf(config.build()), connection))
            })
            .await
    }

    /// An address, if its bucket may be used.
    pub fn bucket(self: &Arc<S3>, name: &str, prefix: &str) -> Result<S3Prefix, CheckpointRefusal> {
        let lies_in = |(bucket, below): &(String, String)| bucket == name && prefix.starts_with(below);
        if self.allowed.is_empty() || self.allowed.iter().any(lies_in) {
            return Ok(self.at(name, prefix));
        }
        let why = "it is not among `checkpoints.s3.buckets`; save to one of them, or have it added".to_owned();
        Err(CheckpointRefusal::Address { uri: format!("s3://{name}/{prefix}"), why })
    }

    fn at(self: &Arc<S3>, name: &str, prefix: &str) -> S3Prefix {
        S3Prefix { s3: Arc::clone(self), name: name.into(), prefix: prefix.into() }
    }
}

impl S3Prefix {
    pub fn location(&self, key: &str) -> String {
        format!("s3://{}/{}{key}", self.name, self.prefix)
    }

    /// The name as in the settings.
    pub fn name(&self) -> String {
        if self.prefix.is_empty() { self.name.to_string() } else { format!("{}/{}", self.name, self.prefix) }
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    async fn client(&self) -> Result<&Client, StoreUnavailable> {
        Ok(&self.s3.connection().await?.0)
    }

    pub async fn stat(&self, key: &str) -> Result<Lookup<StoredObject>, CheckError> {
        let location = self.location(key);
        let call = self.client().await?.head_object().bucket(&*self.name).key(self.key(key));
        let sent = call.checksum_mode(ChecksumMode::Enabled).send();
        let asked = async { self.check_response("HeadObject", &location, sent.await) };
        Ok(match with_timeout(self.s3.timeouts.call, "HeadObject", &location, asked).await? {
            None => Lookup::Absent(NOT_THERE),
            Some(head) => Lookup::Found(StoredObject {
                size: head.content_length().and_then(|n| u64::try_from(n).ok()).unwrap_or(0),
                checksum: head.checksum_sha256().map(str::to_owned),
            }),
        })
    }

    pub async fn read(&self, key: &str, most: u64) -> Result<Lookup<Vec<u8>>, CheckError> {
        let location = self.location(key);
        let work = async {
            let Some(answer) = self.get(key, &location).await? else { return Ok(Lookup::Absent(NOT_THERE)) };
            let mut bytes = Vec::new();
            self.each(&location, answer, |part| {
                let room = usize::try_from((most + 1).saturating_sub(bytes.len() as u64)).unwrap_or(usize::MAX);
                bytes.extend_from_slice(part.get(..room).unwrap_or(part));
                bytes.len() as u64 <= most
            })
            .await?;
            Ok::<_, CheckError>(Lookup::Found(bytes))
        };
        with_timeout(self.s3.timeouts.read, "GetObject", &location, work).await
    }

    pub async fn hash(&self, key: &str, size: u64) -> Result<Lookup<[u8; 32]>, CheckError> {
        let location = self.location(key);
        let work = async {
            let Some(answer) = self.get(key, &location).await? else { return Ok(Lookup::Absent(NOT_THERE)) };
            let (mut hash, mut seen) = (Sha256::new(), 0);
            // If the file has grown since its size was checked, more is read, which changes the hash.
            self.each(&location, answer, |part| {
                hash.update(part);
                seen += part.len() as u64;
                seen <= size
            })
            .await?;
            Ok::<_, CheckError>(Lookup::Found(hash.finalize().into()))
        };
        with_timeout(self.s3.timeouts.read + Duration::from_secs(size / (20 << 20)), "GetObject", &location, work).await
    }

    async fn get(&self, key: &str, location: &str) -> Result<Option<GetObjectOutput>, CheckError> {
        let call = self.client().await?.get_object().bucket(&*self.name).key(self.key(key));
        self.check_response("GetObject", location, call.send().await)
    }

    /// Reads the parts of a body until `take` returns false.
    async fn each(
        &self,
        location: &str,
        answer: GetObjectOutput,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), StoreUnavailable> {
        let mut body = answer.body;
        while let Some(part) = body.next().await {
            let part = part.map_err(|e| {
                StoreUnavailable::new(format!(
                    "{location}: GetObject broke off: {}; it is retried",
                    truncate(&error_chain(&e))
                ))
            })?;
            if !take(&part) {
                break;
            }
        }
        Ok(())
    }

    pub async fn newest(&self, attempt: u32, most: usize) -> Result<Vec<ManifestName>, CheckError> {
        let (location, folder) = (self.location(FOLDER), self.key(FOLDER));
        let mut newest = NewestManifests::new(attempt, most);
        let mut from: Option<String> = None;
        loop {
            let call = self.client().await?.list_objects_v2().bucket(&*self.name).prefix(&folder).max_keys(PAGE);
            let sent = call.set_continuation_token(from.take()).send();
            let asked = async { self.check_response("ListObjectsV2", &location, sent.await) };
            let page = with_timeout(self.s3.timeouts.call, "ListObjectsV2", &location, asked).await?;
            let Some(page) = page else {
                return Err(CheckpointRefusal::NoBucket { bucket: self.name.to_string() }.into());
            };
            let keys = page.contents().iter().filter_map(|object| object.key()?.strip_prefix(&*self.prefix));
            keys.into_iter().try_for_each(|key| newest.take(&location, key))?;
            match page.next_continuation_token() {
                Some(token) if page.is_truncated() == Some(true) => from = Some(token.to_owned()),
                _ => return Ok(newest.names()),
            }
        }
    }

    /// Lists one key below the prefix, to check whether that is allowed.
    pub async fn try_list(&self) -> Result<(), CheckError> {
        let location = self.location("");
        let call = self.client().await?.list_objects_v2().bucket(&*self.name).prefix(&*self.prefix).max_keys(1);
        let sent = call.send();
        let asked = async { self.check_response("ListObjectsV2", &location, sent.await) };
        match with_timeout(self.s3.timeouts.call, "ListObjectsV2", &location, asked).await? {
            Some(_) => Ok(()),
            None => Err(CheckpointRefusal::NoBucket { bucket: self.name.to_string() }.into()),
        }
    }

    /// The result of a call. `None` if S3 responded that the object does not exist.
    fn check_response<T, E>(
        &self,
        action: &str,
        location: &str,
        answer: Result<T, SdkError<E>>,
    ) -> Result<Option<T>, CheckError>
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let error = match answer {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        let why = match CallError::from_sdk(&error) {
            CallError::Service { code, .. } if code == "NoSuchBucket" => {
                return Err(CheckpointRefusal::NoBucket { bucket: self.name.to_string() }.into());
            }
            // The response to a HEAD request has no body and so no code.
            CallError::Service { status: 404, .. } => return Ok(None),
            CallError::Service { code, message, status } => {
                let reason =
                    if code == "without a code" { format!("status {status}") } else { format!("{code}: {message}") };
                format!("{action}: {}; {}", truncate(&reason), remedy(action, &code, status))
            }
            CallError::NoCredentials(why) => format!(
                "{action}: no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a role of the container or \
                 the machine, or the keys in the configuration ({why})"
            ),
            CallError::NoResponse(why) => format!("{action}: {why}; check the endpoint and the network"),
        };
        Err(StoreUnavailable::new(format!("{location}: {why}")).into())
    }
}

/// What to do about an error that does not tell whether the file exists.
fn remedy(action: &str, code: &str, status: u16) -> String {
    if matches!(status, 301 | 307)
        || matches!(code, "PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException")
    {
        return "the bucket is in another region: correct `checkpoints.s3.region`".to_owned();
    }
    match classify_code(code, status) {
        FailureKind::PermissionDenied if code.to_ascii_lowercase().contains("kms") => {
            "allow kms:Decrypt on the bucket's key to these credentials".to_owned()
        }
        FailureKind::PermissionDenied if action == "ListObjectsV2" => {
            "allow s3:ListBucket on the bucket to these credentials".to_owned()
        }
        // Without permission to list, S3 responds the same for a file that does not exist.
        FailureKind::PermissionDenied => {
            "allow s3:GetObject on the bucket's objects and s3:ListBucket on the bucket to these credentials".to_owned()
        }
        FailureKind::BadCredentials => {
            "the credentials are not accepted: correct the access key, its secret or the role".to_owned()
        }
        FailureKind::NotFound | FailureKind::InvalidRequest | FailureKind::Transient => {
            "retried after a delay".to_owned()
        }
    }
}
