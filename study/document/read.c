/* read.c - see read.h. */
#include "study/document/read.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "record/result_file.h"
#include "study/document/rows.h"

static size_t take_unpacked(void *bytes, size_t n, void *file)
{
    const int got = gzread(file, bytes, (unsigned)n);
    return got < 0 ? (size_t)-1 : (size_t)got;
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

json_t *dpb_document_load(const char *path, json_error_t *error)
{
    gzFile file = gzopen(path, "rb"); /* of any file */
    json_t *read = NULL;
    *error = (json_error_t){.line = -1};
    if (!file)
        snprintf(error->text, sizeof error->text, "unable to open %s: %s", path, strerror(errno));
    else if (!skip_mark(file))
        snprintf(error->text, sizeof error->text, "it is UTF-16; save it as UTF-8");
    else
        read = json_load_callback(take_unpacked, file, JSON_REJECT_DUPLICATES, error);
    if (file)
        gzclose(file);
    return read;
}

static const char of_runs[] = "dpbench.result/1 or dpbench.sweep/1";
static const char measured[] = "dpbench.result/1, dpbench.sweep/1, dpbench.comm/1, dpbench.data/1 "
                               "or dpbench.links/1";

/* `schemas`: those of the documents that will do. */
static dpb_status read_file(const char *path, const char *schemas, json_t **document)
{
    json_error_t error;
    json_t *read = dpb_document_load(path, &error);
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

static dpb_status read_kept(const char *directory, json_t *document)
{
    char path[PATH_MAX];
    for (size_t number = 1; dpb_result_kept(directory, number, path) && access(path, F_OK) == 0;
         number++) {
        json_t *run = NULL;
        DPB_TRY(read_file(path, of_runs, &run));
        json_array_append_new(json_object_get(document, "runs"), run);
    }
    return DPB_OK;
}

/* The rows of the runs that are there. */
static void finish_kept(json_t *document)
{
    bool ended = !dpb_json_is(document, "status", "interrupted");
    dpb_sweep_finish(ended ? DPB_OK : DPB_INTERRUPTED, document);
}

static dpb_status read_any(const char *path, const char *schemas, json_t **document)
{
    char first[PATH_MAX];
    struct stat info;
    json_t *read = NULL;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return read_file(path, schemas, document);
    if (!dpb_result_kept(path, 0, first) || access(first, F_OK) != 0)
        return dpb_fail(DPB_USAGE, "%s: no sweep.json in it; give a directory that a sweep made",
                        path);
    DPB_TRY(read_file(first, of_runs, &read));
    dpb_status status = read_kept(path, read);
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
    return read_any(path, of_runs, document);
}

dpb_status dpb_measured_read(const char *path, json_t **document)
{
    return read_any(path, measured, document);
}

bool dpb_result_is(const json_t *document)
{
    const char *schema = dpb_json_text(document, "schema", "");
    return strcmp(schema, "dpbench.result/1") == 0 || strcmp(schema, "dpbench.sweep/1") == 0;
}

dpb_status dpb_measured_read_printable(const char *path, json_t **document)
{
    json_t *read = NULL;
    DPB_TRY(dpb_measured_read(path, &read));
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
