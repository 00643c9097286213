//! Converts JSON to CEL values, as far as it is needed. Text is borrowed.

use std::collections::HashMap;

use cel::ExecutionError;
use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString,
};
use cel::common::value::Val;
use tollgate_admission::review::request::AdmissionRequest;
use tollgate_json::document::{Json, Number};

use super::budget::Budget;
use super::needs::Need;

type Boxed<'v> = Box<dyn Val + 'v>;

/// Returns the needed parts of a value.
pub(super) fn value<'v>(
    json: &'v Json,
    need: &Need,
    budget: &Budget,
) -> Result<Boxed<'v>, ExecutionError> {
    match json {
        Json::Object(_) | Json::Array(_) if need.whole => whole(json, budget),
        Json::Object(members) => {
            let members = need.members.iter().filter_map(|(name, need)| {
                let (name, value) = members.get_key_value(&**name)?;
                Some((&**name, value, need))
            });
            let mut map = HashMap::new();
            for (name, json, need) in members {
                map.insert(key(name), value(json, need, budget)?);
            }
            Ok(Box::new(CelMap::from(map)))
        }
        Json::Array(_) => Ok(Box::new(CelList::from(Vec::<Boxed<'v>>::new()))),
        scalar => whole(scalar, budget),
    }
}

/// Returns the needed parts of the request. As in Kubernetes, `object` and `oldObject` are not part of it.
pub(super) fn request<'v>(
    request: &'v AdmissionRequest,
    need: &Need,
    budget: &Budget,
) -> Result<Boxed<'v>, ExecutionError> {
    let everything = Need {
        whole: true,
        ..Need::default()
    };
    let members = request.document.get().as_object().into_iter().flatten();
    let members = members.map(|(name, value)| (&**name, value));
    let options = request.options.as_ref().map(|options| ("options", options));
    let mut map = HashMap::new();
    for (name, json) in members.chain(options) {
        let need = if need.whole {
            Some(&everything)
        } else {
            need.members.get(name)
        };
        if let Some(need) = need {
            map.insert(key(name), value(json, need, budget)?);
        }
    }
    Ok(Box::new(CelMap::from(map)))
}

fn whole<'v>(json: &'v Json, budget: &Budget) -> Result<Boxed<'v>, ExecutionError> {
    budget.charge(1)?;
    Ok(match json {
        Json::Null => Box::new(CelNull),
        Json::Bool(value) => Box::new(CelBool::from(*value)),
        Json::Number(Number::Integer(integer)) => Box::new(CelInt::from(*integer)),
        Json::Number(number) => Box::new(CelDouble::from(number.as_f64())),
        Json::Text(text) => Box::new(CelString::from(&**text)),
        Json::Array(elements) => {
            let elements = elements.iter().map(|element| whole(element, budget));
            Box::new(CelList::from(elements.collect::<Result<Vec<_>, _>>()?))
        }
        Json::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| Ok((key(name), whole(value, budget)?)));
            let members = members.collect::<Result<HashMap<_, _>, ExecutionError>>()?;
            Box::new(CelMap::from(members))
        }
    })
}

fn key(name: &str) -> CelMapKey<'_> {
    CelMapKey::String(CelString::from(name))
}
