/* facts.c - see facts.h. */
#include "record/facts.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

enum { LINE_BYTES = 1200, MOST_LINES = 8 };

json_t *dpb_facts_to_json(const struct dpb_status_page *page)
{
    uint32_t n = __atomic_load_n(&page->n_facts, __ATOMIC_ACQUIRE);
    json_t *json = n > 0 ? json_object() : NULL;
    for (uint32_t i = 0; i < n && i < DPB_BOARD_FACTS; i++)
        json_object_set_new(json, page->facts[i].name, dpb_json_string(page->facts[i].value));
    return json;
}

json_t *dpb_facts_of_ranks(struct dpb_board *board)
{
    json_t *list = json_array();
    for (uint32_t rank = 0; rank < dpb_board_ranks(board); rank++) {
        const struct dpb_status_page *page = dpb_board_page(board, rank);
        json_t *facts = dpb_facts_to_json(page);
        if (facts)
            json_array_append_new(list, json_pack("{s:I, s:s, s:o}", "rank", (json_int_t)rank,
                                                  "host", page->host, "comm", facts));
    }
    return list;
}

/* "interface lo, address 127.0.0.1"; "": nothing was reported. */
static void describe(const json_t *rank, char line[LINE_BYTES])
{
    struct dpb_text text = dpb_text_in(line, LINE_BYTES);
    dpb_each_member(json_object_get(rank, "comm"), name, value)
        dpb_text_item(&text, ", ", "%s %s", name, dpb_json_text(value, "", "?"));
}

static void print_range(const json_t *ranks, size_t from, size_t to, const char *line, FILE *out)
{
    double first = dpb_json_number(json_array_get(ranks, from), "rank");
    double last = dpb_json_number(json_array_get(ranks, to - 1), "rank");
    if (from == 0 && to == json_array_size(ranks))
        fprintf(out, "%s\n", line);
    else if (first == last)
        fprintf(out, "rank %.0f: %s\n", first, line);
    else
        fprintf(out, "ranks %.0f to %.0f: %s\n", first, last, line);
}

void dpb_facts_print(const json_t *ranks, const char *margin, FILE *out)
{
    char line[LINE_BYTES], other[LINE_BYTES];
    size_t n = json_array_size(ranks), n_lines = 0;
    for (size_t from = 0, to; from < n; from = to) {
        describe(json_array_get(ranks, from), line);
        for (to = from + 1; to < n; to++) {
            describe(json_array_get(ranks, to), other);
            if (strcmp(line, other) != 0)
                break;
        }
        if (line[0] == '\0')
            continue;
        fprintf(out, "%s%-14s", margin, n_lines == 0 ? "reported" : "");
        if (n_lines++ == MOST_LINES) {
            fputs("the other ranks' are in the result\n", out);
            return;
        }
        print_range(ranks, from, to, line, out);
    }
}

/* ---- warnings -------------------------------------------------------------------------------- */

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
    DPB_PRINT_ARGUMENTS(text, sizeof text, format);
    count(warnings, code, text, -1);
}
