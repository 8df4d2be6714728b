/* launch_line.c - see launch_line.h. */
#include "study/sweep/launch_line.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "plan/experiment.h"
#include "study/sweep/sweep_list.h"

enum { WORD = 4096 };
static const char blanks[] = " \t";

struct reader {
    const char *at, *name;
    const struct dpb_launch_size *size;
    char word[WORD];
    size_t length;
};

static uint32_t per_machine(const struct dpb_launch_size *size)
{
    const uint32_t ranks = size->workers + size->servers;
    const uint32_t unit = size->machines * size->learners;
    return size->machines == 0 ? ranks : (ranks + unit - 1) / unit * size->learners;
}

static dpb_status put(struct reader *reader, const char *text, size_t length)
{
    if (reader->length + length >= WORD)
        return dpb_fail(DPB_USAGE, "%s: a word is longer than %d bytes", reader->name, WORD - 1);
    memcpy(reader->word + reader->length, text, length);
    reader->length += length;
    return DPB_OK;
}

/* At a brace. */
static dpb_status put_number(struct reader *reader)
{
    const struct dpb_launch_size *size = reader->size;
    const uint32_t ranks = size->workers + size->servers, each = per_machine(size);
    const struct {
        const char *name;
        uint32_t value;
        bool by_machine;
    } numbers[] = {{"ranks", ranks, false},
                   {"workers", size->workers, false},
                   {"servers", size->servers, false},
                   {"per_machine", each, true},
                   {"machines", each > 0 ? (ranks + each - 1) / each : 0, true}};
    const size_t length = strcspn(reader->at + 1, "}");
    char digits[16];
    if (reader->at[1 + length] == '\0')
        return dpb_fail(DPB_USAGE, "%s: '{' without its '}'; write {{ for a brace", reader->name);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (strlen(numbers[i].name) != length ||
            memcmp(numbers[i].name, reader->at + 1, length) != 0)
            continue;
        if (numbers[i].by_machine && size->machines == 0)
            return dpb_fail(DPB_USAGE,
                            "%s: {%s} needs `machines`, how many there are, beside `launch`",
                            reader->name, numbers[i].name);
        reader->at += length + 2;
        snprintf(digits, sizeof digits, "%u", numbers[i].value);
        return put(reader, digits, strlen(digits));
    }
    return dpb_fail(DPB_USAGE,
                    "%s: '{%.*s}' is no placeholder: use {ranks}, {workers}, {servers}, "
                    "{per_machine} or {machines}, and {{ for a brace",
                    reader->name, (int)length, reader->at + 1);
}

static dpb_status take_word(struct reader *reader)
{
    char quote = '\0';
    reader->length = 0;
    while (*reader->at != '\0' && (quote != '\0' || !strchr(blanks, *reader->at))) {
        const char c = *reader->at;
        if (c == '{' && reader->at[1] != '{') {
            DPB_TRY(put_number(reader));
            continue;
        }
        if (c == quote || (quote == '\0' && (c == '"' || c == '\'')))
            quote = quote == '\0' ? c : '\0';
        else
            DPB_TRY(put(reader, reader->at, 1));
        reader->at += c == '{' ? 2 : 1;
    }
    return quote == '\0' ? DPB_OK
                         : dpb_fail(DPB_USAGE, "%s has a quote without its end", reader->name);
}

dpb_status dpb_launch_line(const char *line, const char *name, const struct dpb_launch_size *size,
                           char ***words, size_t *n_words)
{
    struct reader reader = {.at = line + strspn(line, blanks), .name = name, .size = size};
    char **made = calloc(strlen(line) / 2 + 2, sizeof *made);
    dpb_status status = dpb_allocated(made);
    size_t n = 0;
    while (status == DPB_OK && *reader.at != '\0') {
        status = take_word(&reader);
        if (status == DPB_OK) {
            made[n] = strndup(reader.word, reader.length);
            status = dpb_allocated(made[n++]);
        }
        reader.at += strspn(reader.at, blanks);
    }
    if (status == DPB_OK && (n == 0 || made[0][0] == '\0'))
        status = dpb_fail(DPB_USAGE, "%s names no program", name);
    if (status != DPB_OK) {
        dpb_sweep_list_destroy(made, n);
        return status;
    }
    *words = made;
    *n_words = n;
    return DPB_OK;
}

/* ---- of a sweep ------------------------------------------------------------------------------ */

dpb_status dpb_sweep_launch(const struct dpb_sweep *sweep, uint32_t workers, uint32_t servers,
                            uint32_t learners, char ***words, size_t *n_words)
{
    const struct dpb_launch_size size = {workers, servers, learners,
                                         (uint32_t)sweep->options.machines};
    char name[512];
    snprintf(name, sizeof name, "%s: %s.launch", sweep->launch_origin, sweep->study->name);
    return dpb_launch_line(sweep->options.launch, name, &size, words, n_words);
}

dpb_status dpb_sweep_launch_check(const struct dpb_config *config, struct dpb_sweep *sweep)
{
    static const char *const needs_launch[] = {"machines", "launch_limit_s"};
    const char *section = sweep->study->name;
    char **words = NULL;
    size_t n_words = 0;
    for (size_t i = 0; sweep->options.launch[0] == '\0' && i < 2; i++)
        if (dpb_config_get(config, section, needs_launch[i]))
            return dpb_config_fail(config, DPB_USAGE, section, needs_launch[i],
                                   "%s.%s without %s.launch: give one, or leave it out", section,
                                   needs_launch[i], section);
    if (sweep->options.launch[0] == '\0')
        return DPB_OK;
    sweep->launch_origin = dpb_config_origin(config, section, "launch");
    DPB_TRY(dpb_sweep_launch(sweep, 1, 0, 1, &words, &n_words));
    dpb_sweep_list_destroy(words, n_words);
    return DPB_OK;
}

/* Numbers of processes as they are written; a wrong one is refused with the experiment. */
dpb_status dpb_sweep_launch_place(const struct dpb_sweep *sweep, struct dpb_config *config)
{
    char text[PATH_MAX + 128] = "";
    const struct dpb_setting *hosts = dpb_config_get(config, "comm", "hosts");
    if (sweep->options.launch[0] == '\0')
        return DPB_OK;
    if (hosts) {
        snprintf(text, sizeof text, DPB_LAUNCH_ORIGIN ", %s", hosts->origin);
        return dpb_config_set(config, "comm", "hosts", hosts->value, text);
    }
    const unsigned long learners = dpb_config_count(config, "run", "learners", 1);
    const unsigned long places = dpb_config_count(config, "run", "workers", 1);
    const unsigned long servers = dpb_config_count(config, "run", "servers", 0);
    const bool few = places <= DPB_JOB_RANKS && learners <= DPB_JOB_RANKS;
    const unsigned long workers = few ? places * learners : 0;
    if (sweep->options.machines > 0 && workers > 0 && workers <= DPB_JOB_RANKS &&
        servers <= DPB_JOB_RANKS && workers + servers <= DPB_JOB_RANKS) {
        const struct dpb_launch_size size = {(uint32_t)workers, (uint32_t)servers,
                                             (uint32_t)learners, (uint32_t)sweep->options.machines};
        const unsigned long each = per_machine(&size), rest = (workers + servers) % each;
        int n = snprintf(text, sizeof text, "%lux%lu", (workers + servers) / each, each);
        if (rest > 0)
            snprintf(text + n, sizeof text - (size_t)n, "+%lu", rest);
    }
    return dpb_config_set(config, "comm", "hosts", text, DPB_LAUNCH_ORIGIN);
}
