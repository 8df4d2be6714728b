/*
 * each.h - the loops over JSON values. A loop declares its variables. `break` and `continue` work
 * as in any loop: NAME##_on is false in the body and stays so after `break`.
 */
#ifndef DPB_CORE_BASE_EACH_H
#define DPB_CORE_BASE_EACH_H

#include <jansson.h>
#include <stdint.h>

/* Every `item` of `array`, and its index `i`. NULL is empty. */
#define dpb_each_item(array, i, item)                                               \
    for (size_t i = 0, item##_on = 1; item##_on && i < json_array_size(array); i++) \
        for (json_t *item = (item##_on = 0, json_array_get(array, i)); item;        \
             item = NULL, item##_on = 1)

/* Every member of `object`, which may be const, in the order of insertion. NULL is empty. */
#define dpb_each_member(object, key, value)                                                  \
    for (const char *key = dpb_each_key(object, NULL), *value##_on = key; key && value##_on; \
         key = value##_on ? dpb_each_key(object, key) : NULL)                                \
        for (json_t *value = (value##_on = NULL, dpb_each_value(key)); value;                \
             value = NULL, value##_on = key)

static inline const char *dpb_each_key(const json_t *object, const char *key)
{
    json_t *of = (json_t *)(uintptr_t)object; /* the iterators take no const */
    return json_object_iter_key(key ? json_object_iter_next(of, json_object_key_to_iter(key))
                                    : json_object_iter(of));
}

static inline json_t *dpb_each_value(const char *key)
{
    return json_object_iter_value(json_object_key_to_iter(key));
}

#endif
