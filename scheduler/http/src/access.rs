//! Who asks, for which budget and send, and whether they may: looked at before a body is read.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use sendslot_shared::id::{BudgetName, SendId};

use crate::app::App;
use crate::keys::{Caller, Role};
use crate::problem::{Kind, Problem};

/// What a route needs.
pub(crate) trait Needs: Send + Sync {
    const ROLE: Role;
}

macro_rules! needs {
    ($($name:ident $role:ident),*) => { $(
        #[derive(Debug)]
        pub(crate) struct $name;
        impl Needs for $name {
            const ROLE: Role = Role::$role;
        }
    )* };
}
needs!(ToSend Send, ToRead Read, ToManage Manage);

/// Members of the path by their names, decoded.
pub(crate) async fn path_members<const N: usize>(
    parts: &mut Parts,
    app: &App,
    names: [&str; N],
) -> Result<[Option<String>; N], Problem> {
    let members = RawPathParams::from_request_parts(parts, app).await;
    let members = members.map_err(|_| Problem::new(Kind::MalformedPath, "the path is not UTF-8 once it is decoded"))?;
    Ok(names.map(|name| members.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())))
}

/// The budget that the path names, of a caller who may do this with it.
#[derive(Debug)]
pub(crate) struct Budget<N> {
    pub(crate) name: BudgetName,
    /// The send that the path names.
    id: Option<String>,
    needs: PhantomData<N>,
}

impl<N: Needs> FromRequestParts<App> for Budget<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = Anyone::from_request_parts(parts, app).await?.0;
        let [budget, id] = path_members(parts, app, ["budget", "id"]).await?;
        let name = BudgetName::new(budget.unwrap_or_default());
        let name = name.map_err(|error| Problem::new(Kind::Invalid, error.to_string()))?;
        if !caller.may(N::ROLE, &name) {
            return Err(forbidden(N::ROLE, &format!("the budget {name}")));
        }
        Ok(Self { name, id, needs: PhantomData })
    }
}

impl<N> Budget<N> {
    /// The send that the path names.
    pub(crate) fn send(&self) -> Result<SendId, Problem> {
        let id = SendId::new(self.id.clone().unwrap_or_default());
        id.map_err(|error| Problem::new(Kind::Invalid, error.to_string()))
    }
}

/// The name of the key that a request came with, for its log line.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyName(pub(crate) Arc<OnceLock<String>>);

/// Anyone with a key.
#[derive(Debug)]
pub(crate) struct Anyone(pub(crate) Caller);

impl FromRequestParts<App> for Anyone {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = app.options().keys.caller(&parts.headers)?;
        if let Some(name) = parts.extensions.get::<KeyName>() {
            let _ = name.0.set(caller.name().to_owned());
        }
        Ok(Self(caller))
    }
}

pub(crate) fn forbidden(role: Role, where_to: &str) -> Problem {
    Problem::new(Kind::Forbidden, format!("this needs the role {:?} in {where_to}", role.as_str()))
}
