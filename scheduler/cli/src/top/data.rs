//! What pictures show, as `--json` prints it.

use sendslot_http::calendar::CalendarView;
use sendslot_shared::budget;
use sendslot_shared::id::BudgetName;
use sendslot_shared::store::{Store, StoreError};
use sendslot_shared::view;

/// Of these budgets, or of all.
pub(super) async fn all(store: &Store, named: &[BudgetName]) -> Result<Vec<CalendarView>, StoreError> {
    let names = if named.is_empty() { budget::list(store).await? } else { named.to_vec() };
    let mut all = vec![];
    for name in names {
        all.extend(view::view(store, &name).await?.map(|view| CalendarView::new(&name, view)));
    }
    Ok(all)
}
