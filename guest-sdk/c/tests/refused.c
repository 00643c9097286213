/* Code that must not compile. `languages/c/test` compiles each case alone, with `-DCASE=N`, and expects its comment. */

#include "tollgate.h"

tollgate_text variable;
tollgate_value value;

tollgate_text refused(void) {
#if CASE == 1 /* a JSON Pointer begins with a slash */
    tollgate_get(TOLLGATE_OBJECT, TOLLGATE_TEXT("spec/replicas"), &value);
#elif CASE == 2 /* a JSON Pointer begins with a slash */
    return TOLLGATE_POINTER("spec/replicas");
#elif CASE == 3 /* a JSON Pointer begins with a slash */
    static const tollgate_text places[] = {TOLLGATE_POINTER_LITERAL("spec/replicas")};
    return places[0];
#elif CASE == 4 /* a JSON Pointer begins with a slash */
    tollgate_set(tollgate_patch(), TOLLGATE_TEXT("metadata/labels/a"), TOLLGATE_TEXT("1"));
#elif CASE == 5 /* expected */
    return TOLLGATE_TEXT(variable.at);
#elif CASE == 6 /* expected */
    tollgate_texts list = TOLLGATE_LITERALS({"LoadBalancer", 13});
    return list.at[0];
#elif CASE == 7 /* the length is not that of the literal */
    return tollgate_equal(variable, (tollgate_text){"LoadBalancer", 13}) ? variable : TOLLGATE_TEXT("");
#elif CASE == 8 /* the length is not that of the literal */
    tollgate_deny((tollgate_text){"too many replicas", 16});
#elif CASE == 9 /* the length is not that of the literal */
    tollgate_get(TOLLGATE_OBJECT, (tollgate_text){"/spec/replicas", 13}, &value);
#endif
    return TOLLGATE_TEXT("this compiles");
}
