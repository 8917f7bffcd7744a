//! The SDK's own client over a region in this process: the wire format without a socket, so that time stands still between calls.

use aws_credential_types::Credentials;
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::{BehaviorVersion, Region as Name};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use forebay_kernel::units::Timestamp;
use forebay_loopback_ec2::{ApiReply, Params, Region};
use std::sync::{Arc, Mutex};

/// A region and the time of whoever calls it.
#[derive(Clone, Debug)]
pub struct Shared(pub Arc<Mutex<(Region, Timestamp)>>);

impl Shared {
    pub fn new(region: Region) -> Shared {
        Shared(Arc::new(Mutex::new((region, Timestamp(0)))))
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Region) -> T) -> T {
        look(&mut self.0.lock().unwrap().0)
    }

    /// Calls are made at this time from now on.
    pub fn at(&self, now: Timestamp) {
        self.0.lock().unwrap().1 = now;
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        let config = aws_sdk_ec2::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Name::new("us-east-1"))
            .endpoint_url("http://ec2.invalid")
            .credentials_provider(Credentials::new("id", "secret", None, None, "test"))
            .retry_config(aws_sdk_ec2::config::retry::RetryConfig::disabled())
            .http_client(self.clone());
        Client::from_conf(config.build())
    }
}

impl HttpClient for Shared {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl HttpConnector for Shared {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = request.body().bytes().map(|b| String::from_utf8_lossy(b).into_owned()).unwrap_or_default();
        let mut inside = self.0.lock().unwrap();
        let now = inside.1;
        let reply = inside.0.call(now, &Params::parse(&body));
        HttpConnectorFuture::ready(match reply {
            ApiReply::Response { status, body } => {
                Ok(HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body)))
            }
            ApiReply::Dropped => Err(ConnectorError::io("the connection was closed".into())),
        })
    }
}
