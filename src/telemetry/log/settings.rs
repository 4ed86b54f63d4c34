//! The format and the level of log lines, and the change of the level while the process runs.

use std::{
    fmt,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, PoisonError},
};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    Layer,
    filter::{FilterExt, LevelFilter, ParseError, Targets, filter_fn},
    fmt::format::JsonFields,
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};

use super::{json_format::JsonFormat, text_format::TextFormat, writer::LogOutput};
use crate::labels::labelled_enum;

labelled_enum! {
    /// The format of log lines.
    pub enum LogFormat = Auto {
        /// Text on a terminal, else JSON.
        Auto = "auto",
        /// One JSON object per line.
        Json = "json",
        /// Text for people.
        Text = "text",
    }
}

/// The settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The format of lines.
    pub format: LogFormat,
    /// A level, or directives such as `antiphon=debug,warn`.
    pub level: String,
}

/// A handle that changes the log level while the process runs. Cheap to clone.
#[derive(Clone)]
pub struct LogControl {
    level: Arc<Mutex<String>>,
    set_filter: Arc<SetLogFilter>,
}

/// A function that replaces the filter. Returns `false` if logging has stopped.
type SetLogFilter = dyn Fn(Targets) -> bool + Send + Sync;

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogControl")
            .field("level", &self.current_level())
            .finish_non_exhaustive()
    }
}

impl Default for LogControl {
    /// Creates a handle for a process that does not own its log, such as a test: a change has no effect.
    fn default() -> Self {
        Self {
            level: Arc::new(Mutex::new("info".to_owned())),
            set_filter: Arc::new(|_| true),
        }
    }
}

impl LogControl {
    /// Returns the level or the directives in force.
    pub fn current_level(&self) -> String {
        self.level.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the level or the directives. Fails with a message if they are wrong.
    pub fn set_level(&self, level: &str) -> Result<(), String> {
        LogSettings::check_level(level).map_err(|(message, hint)| format!("{message}; {hint}"))?;
        let filter = parse_filter(level).map_err(|error| error.to_string())?;
        // Locked until the filter is set. Otherwise two concurrent changes could store one level and set the other.
        let mut current = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        if !(self.set_filter)(filter) {
            return Err("failed to set the log level: logging has stopped".to_owned());
        }
        level.clone_into(&mut current);
        Ok(())
    }
}

/// The names of levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl LogSettings {
    /// Checks `level`. Fails with a message and a hint.
    pub fn check_level(level: &str) -> Result<(), (String, String)> {
        let levels = LEVELS.join(", ");
        let hint = || format!("write one of {levels}, or directives like \"antiphon=debug,warn\"");
        for directive in level.split(',').map(str::trim) {
            // No line has a span, so such a directive would never match.
            if directive.contains('[') {
                return Err((format!("directives have no spans, found {directive:?}"), hint()));
            }
            // The parser would accept a misspelled level as the name of a module.
            let lone = !directive.contains('=');
            if lone && !LEVELS.contains(&directive.to_ascii_lowercase().as_str()) {
                return Err((format!("expected a log level, found {directive:?}"), hint()));
            }
        }
        let refuse = |error| (format!("expected a log level or directives: {error}"), hint());
        parse_filter(level).map(drop).map_err(refuse)
    }

    /// Sends the log lines of the whole process to stderr. Fails if logging is installed already.
    pub fn install_log(&self) -> io::Result<LogControl> {
        // The level hint lets tracing skip disabled lines by their level. Without it, each line would run both filters.
        let safe = |filter: Targets| filter.and(filter_fn(is_safe_to_log).with_max_level_hint(LevelFilter::TRACE));
        let (filter, handle) = reload::Layer::new(safe(parse_filter(&self.level).map_err(io::Error::other)?));
        let terminal = io::stderr().is_terminal();
        let text = match self.format {
            LogFormat::Auto => terminal,
            LogFormat::Json => false,
            LogFormat::Text => true,
        };
        let lines = tracing_subscriber::fmt::layer().with_writer(LogOutput);
        // On a terminal the layer itself decides: colors, unless `NO_COLOR` is set.
        let lines = if terminal { lines } else { lines.with_ansi(false) };
        let registry = tracing_subscriber::registry();
        let installed = if text {
            let lines = lines.event_format(TextFormat::new(terminal));
            registry.with(lines.with_filter(filter)).try_init()
        } else {
            let lines = lines.fmt_fields(JsonFields::new()).event_format(JsonFormat::new());
            registry.with(lines.with_filter(filter)).try_init()
        };
        installed.map_err(io::Error::other)?;
        Ok(LogControl {
            level: Arc::new(Mutex::new(self.level.clone())),
            set_filter: Arc::new(move |filter| handle.reload(safe(filter)).is_ok()),
        })
    }
}

fn parse_filter(level: &str) -> Result<Targets, ParseError> {
    let directives: Vec<&str> = level.split(',').map(str::trim).collect();
    directives.join(",").parse()
}

/// Returns `true` if a line cannot contain a credential. At debug level, HTTP libraries log headers.
fn is_safe_to_log(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO || metadata.target().starts_with("antiphon")
}
