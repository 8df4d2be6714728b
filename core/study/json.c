/* json.c - see json.h. */
#include "study/json.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const json_t *dpb_json_at(const json_t *document, const char *path)
{
    while (document != NULL && *path != '\0') {
        size_t length = strcspn(path, ".");
        char key[128];
        if (length >= sizeof key)
            return NULL;
        memcpy(key, path, length);
        key[length] = '\0';
        document = json_object_get(document, key);
        path += length + (path[length] == '.');
    }
    return document;
}

double dpb_json_number(const json_t *document, const char *path)
{
    const json_t *value = dpb_json_at(document, path);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *dpb_json_text(const json_t *document, const char *path, const char *otherwise)
{
    const json_t *value = dpb_json_at(document, path);
    return json_is_string(value) ? json_string_value(value) : otherwise;
}

struct walk {
    char path[256];
    dpb_json_visit *visit;
    void *context;
};

static void walk(struct walk *at, const json_t *a, const json_t *b, size_t length);

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the document */
static void descend(struct walk *at, const char *key, const json_t *a, const json_t *b,
                    size_t length)
{
    int n = snprintf(at->path + length, sizeof at->path - length, ".%s", key);
    if (n > 0 && length + (size_t)n < sizeof at->path)
        walk(at, a, b, length + (size_t)n);
    at->path[length] = '\0';
}

/* NOLINTNEXTLINE(misc-no-recursion) */
static void walk(struct walk *at, const json_t *a, const json_t *b, size_t length)
{
    const char *key;
    json_t *value;
    if (!json_is_object(a) || !json_is_object(b)) {
        if ((a != NULL || b != NULL) && !json_equal(a, b))
            at->visit(at->context, at->path, a, b);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)a, key, value)
        descend(at, key, value, json_object_get(b, key), length);
    json_object_foreach((json_t *)(uintptr_t)b, key, value)
    {
        if (json_object_get(a, key) == NULL)
            descend(at, key, NULL, value, length);
    }
}

void dpb_json_differences(const json_t *a, const json_t *b, const char *name, dpb_json_visit *visit,
                          void *context)
{
    struct walk at = {.visit = visit, .context = context};
    snprintf(at.path, sizeof at.path, "%s", name);
    walk(&at, a, b, strlen(at.path));
}

json_t *dpb_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *dpb_json_string(const char *text)
{
    json_t *string = json_string(text);
    if (string != NULL)
        return string;
    char *copy = strdup(text);
    if (copy == NULL)
        return NULL;
    for (char *c = copy; *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    string = json_string(copy);
    free(copy);
    return string;
}
