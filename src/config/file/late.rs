//! `[principals]`, `[ledger]`, `[webhooks.NAME]` and `[services.NAME]` of the file. Secrets never reach these types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Word, Written,
    values::{FieldName, HashedToken, MessageUrl, Retention, Size, Timeout},
};
use crate::{labels::labelled_enum, ledger::DatabaseTls, proxy::OnOutage};

section! {
    /// `[principals]`: how the proxy identifies callers.
    PrincipalsSection {
        /// Rule by which the proxy tells callers apart.
        pub mode: Word<PrincipalsMode> = Word::default();
        /// Request header in which a gateway that you trust names the end user. Each user is then a caller.
        pub user_header: Option<Written<FieldName>> = None;
        /// Trusts the end user that a request body names, in the same way as `user_header`.
        pub trust_body_user: bool = false;
    }
}

labelled_enum! {
    /// Rule by which the proxy tells callers apart.
    pub enum PrincipalsMode = Each {
        /// Each credential is a separate caller.
        Each = "each",
        /// All requests come from one caller, whatever credential they present.
        Single = "single",
    }
}

section! {
    /// `[ledger]`: the store of pinned results, calls and late results.
    LedgerSection {
        /// Kind of store.
        pub store: Word<StoreName> = Word(StoreName::Sqlite), given("ANTIPHON_LEDGER_STORE");
        /// File of the store. Default: `antiphon/ledger.db` in the user's state directory.
        pub path: Option<String> = None, given("ANTIPHON_LEDGER_PATH");
        /// URL of the database of `store = "postgres"`, such as `postgres://USER:PASSWORD@HOST/NAME`.
        #[schemars(extend("writeOnly" = true))]
        pub url: Option<String> = None;
        /// URL for notifications, if `url` is that of a pooler in transaction mode, which forwards none.
        #[schemars(extend("writeOnly" = true))]
        pub listen_url: Option<String> = None;
        /// Encryption of connections to a database on another machine.
        pub tls: Word<DatabaseTls> = Word(DatabaseTls::Verify);
        /// Creation and changes of the database's tables.
        pub migrate: Word<MigrateName> = Word(MigrateName::Auto);
        /// Accepts a database that loses records when its machine fails: one with `fsync = off`.
        pub allow_unsafe: bool = false;
        /// Makes `/readyz` answer 503 while the ledger does not work.
        pub ready_requires: bool = false;
        /// Time that a call waits for its result, and a result for its owner.
        pub ttl: Written<Retention> = "7d".into();
        /// Silence of a call, from its lane and its service, after which its turn counts as abandoned.
        pub detach_after: Written<Timeout> = "5m".into();
        /// Time between the evidence that a conversation was left and the request to undo its calls.
        pub cancel_grace: Written<Timeout> = "60s".into();
        /// Store of copies of the results that clients send. Results that a repair has moved are in the ledger anyway.
        pub keep_seen: Word<KeepSeenName> = Word(KeepSeenName::Memory);
        /// Appends late results after tool results too, for agents whose users never write.
        pub deliver_in_loops: bool = false;
        /// Serves the task page, over TLS or to this machine, to whoever has a link.
        pub task_page: bool = false;
        /// Maximum size of a posted result in a request. Of a longer one the beginning and the end are inserted.
        pub result_bytes_max: Written<Size> = "256KiB".into();
        /// Reaction to a ledger that does not answer, for a history with a call that it may have answered before.
        pub on_outage: Word<OnOutage> = Word(OnOutage::Wait);
        /// Maximum size of the ledger.
        pub bytes_max: Written<Size> = "1GiB".into(), given("ANTIPHON_LEDGER_BYTES_MAX");
        /// Maximum size of the records of one caller.
        pub principal_bytes_max: Written<Size> = "256MiB".into();

        // Old key.
        /// Time after which an unused session is forgotten.
        pub session_idle: Option<Written<Retention>> = None,
            old("remove it: the time is 24h, or the longest max_duration of a tool");
    }
}

labelled_enum! {
    /// Kind of store.
    pub enum StoreName {
        /// A SQLite file that survives a restart.
        Sqlite = "sqlite",
        /// Memory of the process, lost when it ends.
        Memory = "memory",
        /// A PostgreSQL database that several replicas share.
        Postgres = "postgres",
    }
}

labelled_enum! {
    /// Creation and changes of the database's tables.
    pub enum MigrateName {
        /// The process does it when it starts.
        Auto = "auto",
        /// `antiphon store migrate` does it. The process itself then needs no right to create tables.
        Manual = "manual",
    }
}

labelled_enum! {
    /// Store of results that were only seen in requests.
    pub enum KeepSeenName {
        /// Memory of the process.
        Memory = "memory",
        /// The ledger's store.
        Disk = "disk",
    }
}

section! {
    /// `[webhooks.NAME]`: a receiver of events about the calls of some callers.
    WebhookSection {
        /// URL that gets the events. https, or http on this machine. Redirects are not followed.
        pub url: Option<Written<MessageUrl>> = None;
        /// Secret of its Standard Webhooks signatures, written as `${NAME}`.
        #[schemars(extend("writeOnly" = true))]
        pub secret: Option<String> = None;
        /// Names of the client tokens whose events it gets, or `*` for all.
        pub principals: Vec<String> = Vec::new();
        /// Adds the contents of results to the events. Without it they have ids only.
        pub include_content: bool = false;
    }
}

section! {
    /// `[services.NAME]`: a tool service that may post results of calls. It needs a token, a secret or both.
    ServiceSection {
        /// Turns off the built-in service `local`: commands of the proxy's own user may not post results.
        pub deny: bool = false;
        /// Hash of its token, as `antiphon config token NAME` prints it.
        pub token: Option<Written<HashedToken>> = None;
        /// Secret of its Standard Webhooks signatures, written as `${NAME}`.
        #[schemars(extend("writeOnly" = true))]
        pub secret: Option<String> = None;
        /// Names of the client tokens whose calls it answers, or `*` for all.
        pub principals: Vec<String> = Vec::new();
        /// Names of the tools that it runs, or `*` for all.
        pub tools: Vec<String> = Vec::new();
        /// The service may claim intents for users of its own, whom it names, without a recorded call.
        pub on_behalf: bool = false;
    }
}
