/* says.c - see says.h. */
#include "lib/says.h"

#include <regex.h>
#include <string.h>

#include "lib/test.h"

void expect_part(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' is not in '%s'", part, text);
}

void expect_words(const char *title, const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strstr(text, *words))
            fail_msg("%s: '%s' is not in '%s'", title, *words, text);
}

bool has_line(const char *text, const char *pattern)
{
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0);
    bool result = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return result;
}

void expect_line(const char *text, const char *pattern)
{
    if (!has_line(text, pattern))
        fail_msg("no line is like '%s':\n%s", pattern, text);
}
