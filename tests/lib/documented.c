/* documented.c - see documented.h. */
#include "lib/documented.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ctype.h>

#include "lib/test.h"

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = calloc(1, 1 << 20);
    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static bool is_part_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* As a word of its own between backquotes. */
static bool has_name(const char *text, const char *name)
{
    bool quoted = false;
    size_t length = strlen(name);
    for (const char *at = text; *at != '\0'; at++) {
        quoted ^= *at == '`';
        if (*at == '\n')
            quoted = false;
        if (quoted && strncmp(at + 1, name, length) == 0 && !is_part_of_name(*at) &&
            !is_part_of_name(at[1 + length]))
            return true;
    }
    return false;
}

static bool is_foreign(const char *name)
{
    static const char *const foreign[] = {"config", "environment", "plugins", "axes",
                                          "over",   "cell",        "key"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (strcmp(name, foreign[i]) == 0)
            return true;
    return false;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the document */
static void expect_names(const json_t *part, const char *path, const char *text)
{
    const char *name;
    json_t *value;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)part, name, value)
    {
        if (!has_name(text, name))
            fail_msg("%s: no `%s`", path, name);
        if (!is_foreign(name))
            expect_names(value, path, text);
    }
    json_array_foreach(part, i, value) expect_names(value, path, text);
}

void expect_documented_in(const json_t *document, const char *path)
{
    char *text = read_all(path);
    expect_names(document, path, text);
    free(text);
}

void expect_documented(const json_t *document)
{
    expect_documented_in(document, "docs/results.md");
}
