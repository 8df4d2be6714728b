/* warnings.c - see warnings.h. */
#include "study/warnings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "study/json.h"

/* The entry of this text, made where there is none. */
static json_t *entry_of(json_t *warnings, const char *code, const char *text)
{
    dpb_each_item(warnings, i, entry)
        if (dpb_json_is(entry, "code", code) && dpb_json_is(entry, "text", text))
            return entry;
    json_t *entry = json_pack("{s:o, s:o, s:i, s:[]}", "code", dpb_json_string(code), "text",
                              dpb_json_string(text), "count", 0, "ranks");
    json_array_append_new(warnings, entry);
    return entry;
}

static void count(json_t *warnings, const char *code, const char *text, int64_t rank)
{
    json_t *entry = entry_of(warnings, code, text);
    json_t *n = json_object_get(entry, "count");
    json_integer_set(n, json_integer_value(n) + 1);
    if (rank >= 0)
        json_array_append_new(json_object_get(entry, "ranks"), json_integer((json_int_t)rank));
}

static void collect_rank(json_t *warnings, const struct dpb_status_page *page, uint32_t rank)
{
    uint32_t n = page->n_warnings < DPB_BOARD_WARNINGS ? page->n_warnings : DPB_BOARD_WARNINGS;
    for (uint32_t i = 0; i < n; i++) {
        /* A rank that died while it wrote may have left no end. */
        char code[sizeof page->warnings[i].code + 1], text[sizeof page->warnings[i].text + 1];
        snprintf(code, sizeof code, "%.*s", (int)sizeof page->warnings[i].code,
                 page->warnings[i].code);
        snprintf(text, sizeof text, "%.*s", (int)sizeof page->warnings[i].text,
                 page->warnings[i].text);
        count(warnings, code, text, rank);
    }
    if (page->n_warnings > n)
        dpb_warnings_add(warnings, "warnings_dropped", "rank %u had %u more warnings", rank,
                         page->n_warnings - n);
}

json_t *dpb_warnings_collect(struct dpb_board *board)
{
    json_t *warnings = json_array();
    const char *code, *text;
    for (size_t i = 0; dpb_warning_at(i, &code, &text); i++)
        count(warnings, code, text, -1);
    for (uint32_t rank = 0; board && rank < dpb_board_ranks(board); rank++)
        collect_rank(warnings, dpb_board_page(board, rank), rank);
    return warnings;
}

void dpb_warnings_add(json_t *warnings, const char *code, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    count(warnings, code, text, -1);
}
