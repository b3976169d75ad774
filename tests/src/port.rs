//! A free loopback port.

use std::io;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A free loopback port, each of whose connections is served in a task of its own. Dropping it closes the port and all of them.
#[derive(Debug)]
pub struct Port {
    number: u16,
    task: JoinHandle<()>,
}

impl Port {
    /// Serves connections by this from now on.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn serve<F, S>(serve: F) -> io::Result<Self>
    where
        F: Fn(TcpStream) -> S + Send + 'static,
        S: Future + Send + 'static,
        S::Output: Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let number = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(serve(client));
            }
        });
        Ok(Self { number, task })
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.task.abort();
    }
}
