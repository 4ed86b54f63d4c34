//! Exchanges about late results: answered here, past the same guard as every other.

use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;

use super::{
    AnswerBody, Inner, ProxyError, Shape, credential, failed,
    guard::{Admission, Refusal},
    preflight,
    reading::is_signed,
    record::Record,
};
use crate::{
    auth::{
        Principal, Who,
        principal::{USER_BYTES_MAX, presented},
    },
    policy::{Class, Verdict},
    provider::is_plain,
    recall::Patience,
};

impl Inner {
    /// An exchange under `/ledger`.
    pub(super) async fn ledger(
        &self,
        request: Request<Incoming>,
        mut record: Record,
        shape: Shape,
    ) -> Response<AnswerBody> {
        let admitted = self.guard.admit(&request).and_then(|admission| {
            let plain = is_plain(request.uri().path());
            plain.then_some(admission).ok_or(Refusal::Path)
        });
        match admitted {
            Err(refusal) => return failed(&ProxyError::Refused(refusal), record, shape),
            Ok(Admission::Preflight) => return preflight(record),
            Ok(Admission::Forward) => {}
        }
        let reader = self.reader(&request);
        let (mut head, body) = self.api.answer(request, reader).await.into_parts();
        record.answered(head.status, &mut head.headers);
        record.event.bytes_out = body.length();
        record.end(Verdict::of(Class::Success), "done");
        Response::from_parts(head, AnswerBody::ledger(body))
    }

    /// Notes who asks, for what the answer says of his late results. Gives what is left of the exchange's patience with the
    /// ledger.
    pub(super) async fn late_results(&self, who: Who, record: &mut Record) -> Patience {
        let mut patience = Patience::WHOLE;
        if !self.late.is_used() {
            return patience;
        }
        record.asker = Some((self.late.clone(), who));
        let load = async |by| {
            // What is not there in time is not said of this answer.
            if let Ok(true) = tokio::time::timeout_at(by, self.late.callers().is_proven(who.principal)).await {
                self.late.load(who.principal, by).await;
            }
        };
        patience.spend(load).await;
        patience
    }

    /// Who reads: told as on every other path, by the client token wherever it is presented. A signature tells nobody.
    fn reader<B>(&self, request: &Request<B>) -> Option<Principal> {
        let (headers, query) = (request.headers(), request.uri().query());
        if is_signed(headers) {
            return None;
        }
        let tokens = &self.settings.client_tokens;
        let caller = credential::authenticate(tokens, &self.principals, headers, query, false).ok()?;
        let in_place = || presented(headers, query).find_map(|secret| tokens.verify(&secret));
        let account = match caller.token {
            None => in_place().map_or(caller.principal, |name| Principal::of_token(&self.principals, name)),
            Some(_) => caller.principal,
        };
        self.who(account, headers).ok().map(|who| who.principal)
    }

    /// Who asks, with the user that is named within.
    pub(super) fn who(&self, account: Principal, headers: &HeaderMap) -> Result<Who, Refusal> {
        let settings = &self.settings.principals;
        if settings.single {
            return Ok(Who::account(Principal::single(&self.principals)));
        }
        let who = Who::account(account);
        let Some(name) = &settings.user_header else {
            return Ok(who);
        };
        let mut users = headers.get_all(name).iter();
        match (users.next(), users.next()) {
            (None, _) => Ok(who),
            (Some(user), None) if !user.is_empty() && user.len() <= USER_BYTES_MAX => {
                Ok(who.with_user(&self.principals, user.as_bytes()))
            }
            _ => Err(Refusal::User),
        }
    }
}
