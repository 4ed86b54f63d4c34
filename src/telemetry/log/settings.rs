//! Log lines on stderr: JSON for machines, text for people.

use std::{
    fmt,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, PoisonError},
};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, LevelFilter, ParseError, filter_fn},
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};

use super::writer::Lines;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// Text for people.
    Text,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How a line looks.
    pub format: LogFormat,
    /// A level, or directives as `RUST_LOG` takes them.
    pub level: String,
}

/// Changes what is logged while the process runs. A cheap handle.
#[derive(Clone)]
pub struct LogControl {
    level: Arc<Mutex<String>>,
    change: Arc<Change>,
}

type Change = dyn Fn(EnvFilter) -> bool + Send + Sync;

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogControl")
            .field("level", &self.level())
            .finish_non_exhaustive()
    }
}

impl Default for LogControl {
    /// Of a process whose log lines are somebody else's: no change has an effect.
    fn default() -> Self {
        Self {
            level: Arc::new(Mutex::new("info".to_owned())),
            change: Arc::new(|_| true),
        }
    }
}

impl LogControl {
    /// The level, or the directives, in force.
    pub fn level(&self) -> String {
        self.level.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs by another level, or other directives, from now on; otherwise what is wrong with them.
    pub fn set_level(&self, level: &str) -> Result<(), String> {
        LogSettings::check_level(level).map_err(|(message, hint)| match hint {
            Some(hint) => format!("{message}; {hint}"),
            None => message,
        })?;
        let filter = filter(level).map_err(|error| error.to_string())?;
        let mut standing = self.level.lock().unwrap_or_else(PoisonError::into_inner);
        if !(self.change)(filter) {
            return Err("nothing is logged any more".to_owned());
        }
        level.clone_into(&mut standing);
        Ok(())
    }
}

/// The words that stand for a level.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl LogSettings {
    /// Whether `level` can be used; otherwise what is wrong, and perhaps what to do.
    pub fn check_level(level: &str) -> Result<(), (String, Option<String>)> {
        let hint = || {
            Some(format!(
                "write one of {}, or directives like \"antiphon=debug,warn\"",
                LEVELS.join(", ")
            ))
        };
        for directive in level.split(',').map(str::trim) {
            // A lone word that is no level would silently mean "everything of the module of that name".
            let lone = !directive.contains('=') && !directive.contains('[');
            if lone && !LEVELS.contains(&directive.to_ascii_lowercase().as_str()) {
                return Err((format!("expected a log level, found {directive:?}"), hint()));
            }
        }
        match filter(level) {
            Ok(_) => Ok(()),
            Err(error) => Err((format!("expected a log level or directives: {error}"), hint())),
        }
    }

    /// Sends log lines of the whole process to stderr. Fails if that was done before.
    pub fn install(&self) -> io::Result<LogControl> {
        // One filter that knows its level: two of them leave every line of every library to be asked about when it runs.
        let discreet = |filter: EnvFilter| filter.and(filter_fn(is_discreet).with_max_level_hint(LevelFilter::TRACE));
        let (filter, handle) = reload::Layer::new(discreet(filter(&self.level).map_err(io::Error::other)?));
        let terminal = io::stderr().is_terminal();
        let text = match self.format {
            LogFormat::Auto => terminal,
            LogFormat::Json => false,
            LogFormat::Text => true,
        };
        let lines = tracing_subscriber::fmt::layer().with_writer(Lines);
        // On a terminal the layer's own default holds: colours, unless `NO_COLOR` is set.
        let lines = if terminal { lines } else { lines.with_ansi(false) };
        let registry = tracing_subscriber::registry();
        let installed = if text {
            registry.with(lines.compact().with_filter(filter)).try_init()
        } else {
            let lines = lines
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false);
            registry.with(lines.with_filter(filter)).try_init()
        };
        installed.map_err(io::Error::other)?;
        Ok(LogControl {
            level: Arc::new(Mutex::new(self.level.clone())),
            change: Arc::new(move |filter| handle.reload(discreet(filter)).is_ok()),
        })
    }
}

fn filter(level: &str) -> Result<EnvFilter, ParseError> {
    let directives: Vec<&str> = level.split(',').map(str::trim).collect();
    EnvFilter::builder().parse(directives.join(","))
}

/// Whether a line may be written at all: at debug level, HTTP libraries show headers, and with them credentials.
fn is_discreet(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO || metadata.target().starts_with("antiphon")
}
