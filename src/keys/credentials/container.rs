//! Requests to the credentials endpoint of a container on ECS or EKS.

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode,
    header::{ACCEPT, AUTHORIZATION},
};
use http_body_util::{BodyExt, Empty, Limited};

use super::{renewal::CredentialFetcher, secret_file::read_secret};
use crate::{
    clock,
    keys::credential_source::{
        AwsScope, ContainerEndpoint, ContainerToken, OUTPUT_BYTES_MAX, SOURCE_TIMEOUT, SourceFailure,
        SuppliedCredential, parse_container_answer,
    },
    upstream::{BoxedBody, Sender},
};

/// The credentials endpoint of a container.
pub(super) struct ContainerFetcher {
    pub(super) sender: Sender,
    pub(super) endpoint: ContainerEndpoint,
    pub(super) scope: AwsScope,
}

impl ContainerFetcher {
    /// Builds the request with the present authorization token.
    async fn build_request(&self) -> Result<Request<BoxedBody>, SourceFailure> {
        let body = Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync();
        let mut request = Request::new(body);
        request.uri_mut().clone_from(&self.endpoint.uri);
        let fields = request.headers_mut();
        fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let token = match &self.endpoint.token {
            None => return Ok(request),
            Some(ContainerToken::Text(token)) => token.clone(),
            Some(ContainerToken::File(path)) => read_secret(path).await.map_err(|_| SourceFailure::EndpointToken)?,
        };
        let mut value = HeaderValue::from_str(token.reveal()).map_err(|_| SourceFailure::EndpointToken)?;
        value.set_sensitive(true);
        fields.insert(AUTHORIZATION, value);
        Ok(request)
    }
}

impl CredentialFetcher for ContainerFetcher {
    async fn fetch_credential(&mut self) -> Result<SuppliedCredential, SourceFailure> {
        let request = self.build_request().await?;
        // Boxed, since the future of a request is large.
        let sent = Box::pin(self.sender.send(request, SOURCE_TIMEOUT)).await;
        let answer = sent.map_err(|_| SourceFailure::Unreachable)?;
        if answer.status() != StatusCode::OK {
            return Err(SourceFailure::HttpStatus(answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), OUTPUT_BYTES_MAX).collect().await;
        let body = body.map_err(|error| {
            if error.is::<http_body_util::LengthLimitError>() {
                SourceFailure::TooLong
            } else {
                SourceFailure::Unreachable
            }
        })?;
        parse_container_answer(&body.to_bytes(), clock::system_time()).map(|keys| keys.with_scope(&self.scope))
    }
}
