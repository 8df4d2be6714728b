/* read.c - see read.h. */
#include "study/document/read.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "record/result_file.h"
#include "study/document/spill.h"
#include "study/document/rows.h"

/* ---- JSON ---------------------------------------------------------------------------------- */

/* Reads a file's JSON. The text of each run of a document is parsed and spilled as soon as it ends;
 * the text of all the rest at the end of the file. */
struct reader {
    FILE *head; /* the text, with 0 in the place of each run */
    FILE *run;  /* the text of a run; NULL: none is being read */
    char *run_text;
    size_t run_bytes;
    bool printable;
    json_t *runs; /* null for what is no object. @owned */
    json_error_t *error;
    /* The place in the text: */
    size_t depth, item; /* item: of the list at depth 2 */
    bool in_string, is_escaped, in_runs;
    char key[8]; /* the last string of the outermost object, as far as it fits */
    size_t key_bytes;
};

/* Takes the run, and spills it. Runs of several documents share equal parts, too. */
static bool add_run(json_t *runs, json_t *run, bool printable)
{
    static json_t *last;
    json_t *added = printable ? dpb_json_printable(run) : json_incref(run);
    dpb_run_spill(added, last);
    json_decref(run);
    json_decref(last);
    last = json_incref(added);
    return json_array_append_new(runs, added) == 0;
}

/* False: the run is no JSON. */
static bool end_run(struct reader *reader)
{
    fclose(reader->run);
    reader->run = NULL;
    json_t *run =
        json_loadb(reader->run_text, reader->run_bytes, JSON_REJECT_DUPLICATES, reader->error);
    free(reader->run_text);
    while (run && json_array_size(reader->runs) < reader->item)
        json_array_append_new(reader->runs, json_null());
    return run && add_run(reader->runs, run, reader->printable);
}

static void take_string(struct reader *reader, char c)
{
    const bool ends = c == '"' && !reader->is_escaped;
    reader->is_escaped = c == '\\' && !reader->is_escaped;
    reader->in_string = !ends;
    if (!ends && reader->depth == 1 && reader->key_bytes < sizeof reader->key)
        reader->key[reader->key_bytes++] = c;
}

/* Takes a character outside of strings. */
static void take_mark(struct reader *reader, char c)
{
    if (c == '"') {
        reader->in_string = true;
        reader->key_bytes = 0;
    } else if (c == '{' || c == '[') {
        reader->depth++;
        if (reader->depth != 2)
            return;
        reader->in_runs = c == '[' && reader->key_bytes == 4 && memcmp(reader->key, "runs", 4) == 0;
        reader->item = 0;
    } else if (c == ',') {
        reader->item += reader->depth == 2;
    } else if ((c == '}' || c == ']') && reader->depth > 0) {
        reader->depth--;
    }
}

static bool take(struct reader *reader, char c)
{
    const size_t depth = reader->depth;
    if (reader->in_string)
        take_string(reader, c);
    else
        take_mark(reader, c);
    if (!reader->run && c == '{' && depth == 2 && reader->depth == 3 && reader->in_runs) {
        putc_unlocked('0', reader->head);
        reader->run = open_memstream(&reader->run_text, &reader->run_bytes);
    }
    putc_unlocked(c, reader->run ? reader->run : reader->head);
    return !reader->run || reader->depth > 2 || end_run(reader);
}

/* Puts the runs into the document. */
static json_t *end_head(const struct reader *reader, const char *text, size_t n)
{
    json_t *read = json_loadb(text, n, JSON_REJECT_DUPLICATES, reader->error);
    dpb_each_item(reader->runs, i, run)
        if (json_is_object(run))
            json_array_set(json_object_get(read, "runs"), i, run);
    return read;
}

static json_t *read_json(gzFile file, bool printable, json_error_t *error)
{
    char *text = NULL, bytes[65536];
    size_t n = 0;
    int got = 0;
    struct reader reader = {.head = open_memstream(&text, &n),
                            .runs = json_array(),
                            .printable = printable,
                            .error = error};
    bool good = reader.head && reader.runs;
    while (good && (got = gzread(file, bytes, sizeof bytes)) > 0)
        for (int i = 0; i < got && good; i++)
            good = take(&reader, bytes[i]);
    if (reader.run) { /* the text ends within it */
        end_run(&reader);
        good = false;
    }
    if (reader.head)
        fclose(reader.head);
    if (got < 0)
        snprintf(error->text, sizeof error->text, "it cannot be read: %s", gzerror(file, &got));
    json_t *read = good && got == 0 ? end_head(&reader, text, n) : NULL;
    json_decref(reader.runs);
    free(text);
    return read;
}

/* Skips the mark of UTF-8, as .ini files may have it. False: the text is UTF-16. */
static bool skip_mark(gzFile file)
{
    unsigned char first[3] = {0};
    const int n = gzread(file, first, sizeof first);
    if (n >= 2 &&
        ((first[0] == 0xff && first[1] == 0xfe) || (first[0] == 0xfe && first[1] == 0xff)))
        return false;
    if (n != 3 || memcmp(first, "\xef\xbb\xbf", 3) != 0)
        gzrewind(file);
    return true;
}

static json_t *load(const char *path, bool printable, json_error_t *error)
{
    gzFile file = gzopen(path, "rb"); /* of any file */
    json_t *read = NULL;
    *error = (json_error_t){.line = -1};
    if (!file)
        snprintf(error->text, sizeof error->text, "unable to open %s: %s", path, strerror(errno));
    else if (!skip_mark(file))
        snprintf(error->text, sizeof error->text, "it is UTF-16; save it as UTF-8");
    else
        read = read_json(file, printable, error);
    if (file)
        gzclose(file);
    return read;
}

json_t *dpb_document_load(const char *path, json_error_t *error)
{
    return load(path, false, error);
}

/* ---- documents ----------------------------------------------------------------------------- */

static const char of_runs[] = "dpbench.result/1 or dpbench.sweep/1";
static const char measured[] = "dpbench.result/1, dpbench.sweep/1, dpbench.comm/1, dpbench.data/1 "
                               "or dpbench.links/1";

/* `schemas`: those of the documents that will do. */
static dpb_status read_file(const char *path, const char *schemas, bool printable,
                            json_t **document)
{
    json_error_t error;
    json_t *read = load(path, printable, &error);
    if (!read)
        return dpb_fail(DPB_USAGE, "%s: %s%s", path, error.text,
                        error.line > 0 ? " (is it a result of dpbench?)" : "");
    const char *schema = dpb_json_text(read, "schema", "missing");
    const bool old = !dpb_result_is(read) && !json_object_get(read, "series");
    const bool known = dpb_begins_with(schema, "dpbench.") &&
                       dpb_text_lists(schemas, ", ", schema, strlen(schema));
    if (known && !old) {
        *document = read;
        return DPB_OK;
    }
    dpb_status status =
        known ? dpb_fail(DPB_USAGE, "%s: has no series: an older dpbench wrote it; measure again",
                         path)
              : dpb_fail(DPB_USAGE, "%s: schema is %s, wanted %s; give a file that dpbench wrote",
                         path, schema, schemas);
    json_decref(read);
    return status;
}

static dpb_status read_kept(const char *directory, bool printable, json_t *document)
{
    char path[PATH_MAX];
    for (size_t number = 1; dpb_result_kept(directory, number, path) && access(path, F_OK) == 0;
         number++) {
        json_t *run = NULL;
        DPB_TRY(read_file(path, of_runs, false, &run));
        DPB_TRY(dpb_allocated(add_run(json_object_get(document, "runs"), run, printable)));
    }
    return DPB_OK;
}

/* The rows of the runs that are there. */
static void finish_kept(json_t *document)
{
    bool ended = !dpb_json_is(document, "status", "interrupted");
    dpb_sweep_finish(ended ? DPB_OK : DPB_INTERRUPTED, document);
}

static dpb_status read_any(const char *path, const char *schemas, bool printable, json_t **document)
{
    char first[PATH_MAX];
    struct stat info;
    json_t *read = NULL;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return read_file(path, schemas, printable, document);
    if (!dpb_result_kept(path, 0, first) || access(first, F_OK) != 0)
        return dpb_fail(DPB_USAGE, "%s: no sweep.json in it; give a directory that a sweep made",
                        path);
    DPB_TRY(read_file(first, of_runs, printable, &read));
    dpb_status status = read_kept(path, printable, read);
    if (status != DPB_OK) {
        json_decref(read);
        return status;
    }
    finish_kept(read);
    *document = read;
    return DPB_OK;
}

dpb_status dpb_result_read(const char *path, json_t **document)
{
    return read_any(path, of_runs, false, document);
}

dpb_status dpb_measured_read(const char *path, json_t **document)
{
    return read_any(path, measured, false, document);
}

bool dpb_result_is(const json_t *document)
{
    const char *schema = dpb_json_text(document, "schema", "");
    return strcmp(schema, "dpbench.result/1") == 0 || strcmp(schema, "dpbench.sweep/1") == 0;
}

dpb_status dpb_measured_read_printable(const char *path, json_t **document)
{
    json_t *read = NULL;
    DPB_TRY(read_any(path, measured, true, &read));
    *document = dpb_json_printable(read);
    json_decref(read);
    return dpb_allocated(*document);
}

const json_t *dpb_result_part(const json_t *document, const char *path)
{
    const json_t *part = dpb_json_at(document, path);
    const json_t *runs = json_object_get(document, "runs");
    for (size_t i = 0; !part && i < json_array_size(runs); i++)
        part = dpb_json_at(json_array_get(runs, i), path);
    return part;
}

static void add_plugins(const json_t *run, json_t *all)
{
    dpb_each_member(dpb_json_at(run, "versions.plugins"), kind, plugin) {
        const char *own = dpb_json_text(plugin, "name", "?");
        const json_t *known;
        char name[256];
        size_t n = 1;
        snprintf(name, sizeof name, "%.100s '%.100s'", kind, own);
        while ((known = json_object_get(all, name)) && !json_equal(known, plugin))
            snprintf(name, sizeof name, "%.100s '%.100s' %zu", kind, own, ++n);
        json_object_set(all, name, plugin);
    }
}

json_t *dpb_result_all_versions(const json_t *document)
{
    const json_t *runs = json_object_get(document, "runs"),
                 *first = dpb_result_part(document, "versions");
    json_t *versions = json_copy((json_t *)(uintptr_t)first), *all = json_object();
    if (!runs)
        add_plugins(document, all);
    dpb_each_item(runs, i, run)
        add_plugins(run, all);
    json_object_set_new(versions, "plugins", all);
    return versions;
}

json_t *dpb_result_versions_within(const json_t *versions, const json_t *other)
{
    json_t *made = json_copy((json_t *)(uintptr_t)versions), *common = json_object();
    dpb_each_member(json_object_get(versions, "plugins"), name, plugin)
        if (json_object_get(json_object_get(other, "plugins"), name))
            json_object_set(common, name, plugin);
    json_object_set_new(made, "plugins", common);
    return made;
}

dpb_status dpb_result_of_one_worker(const json_t *result, const char *path, const char *who)
{
    const char *consistency = dpb_json_text(result, "strategy.consistency", "");
    const double workers = dpb_json_number(result, "world.workers");
    if (!dpb_json_is(result, "schema", "dpbench.result/1"))
        return dpb_fail(DPB_USAGE,
                        "%s: %s the result of one run, schema dpbench.result/1; the runs of a "
                        "sweep lie in its directory, which ends in .runs",
                        path, who);
    if (!dpb_json_is(result, "status", "ok"))
        return dpb_fail(DPB_USAGE, "%s: the run did not end well", path);
    if (workers != 1)
        return dpb_fail(DPB_USAGE,
                        "%s: %s a run of one worker, and this has %.0f: measure with "
                        "run.workers=1 run.learners=1 comm.name=independent",
                        path, who, workers);
    if (strcmp(consistency, "none") == 0 || strcmp(consistency, "synchronous") == 0)
        return DPB_OK;
    return dpb_fail(DPB_USAGE,
                    "%s: the strategy was %s (%s), whose worker's step is not that of a "
                    "synchronous one: measure with comm.name=independent",
                    path, dpb_json_text(result, "strategy.name", "?"), consistency);
}
