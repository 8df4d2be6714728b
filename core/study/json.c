/* json.c - see json.h. */
#include "study/json.h"

#include <math.h>
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
