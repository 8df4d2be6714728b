/* spill.c - see spill.h. */
#include "study/document/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"

/* A spilled part is {"spilled": [mark, place, bytes, items, the first numbers...]}. The mark is
 * known by its address, so no document can imitate it. A reader that takes the part for a list
 * finds no items. */
enum { MARK, PLACE, BYTES, ITEMS, FIRST, N_FIRST = 4 };

static const struct {
    const char *of, *key; /* `of` NULL: the run's own */
} spilled_parts[] = {{"timing", "step_ns"}, {"timing", "warmup_step_ns"},
                     {NULL, "loss"},        {NULL, "training_accuracy"},
                     {NULL, "ranks"},       {NULL, "why"},
                     {NULL, "monitor"}};
enum { PARTS = sizeof spilled_parts / sizeof *spilled_parts };

/* The file of this process. Equal texts are there once. */
static struct {
    bool is_tried, is_full; /* full: nothing more is put into it */
    int fd;                 /* -1: not yet made, or it cannot be */
    json_int_t end;
    json_t *places, *mark; /* places: by the hash of the text */
} store = {.fd = -1};

/* ---- the file -------------------------------------------------------------------------------- */

static void give_up(const char *path)
{
    dpb_log(DPB_LOG_WARNING, "%s: %s: runs stay in memory; set TMPDIR to a directory with room",
            path, strerror(errno));
    store.is_full = true;
}

static bool is_open(void)
{
    char path[PATH_MAX];
    const char *directory = getenv("TMPDIR");
    if (store.is_tried)
        return store.fd >= 0 && !store.is_full && store.places && store.mark;
    store.is_tried = true;
    snprintf(path, sizeof path, "%s/dpbench-XXXXXX",
             directory && *directory != '\0' ? directory : "/tmp");
    store.fd = mkostemp(path, O_CLOEXEC);
    store.places = json_object();
    store.mark = json_string("spilled");
    if (store.fd >= 0)
        unlink(path);
    else
        give_up(path);
    return is_open();
}

static bool write_all(const char *text, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t wrote = pwrite(store.fd, text + done, n - done, store.end + (off_t)done);
        if (wrote < 0 && errno != EINTR)
            return false;
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

/* The place of the text in the file. False: it is not there. */
static bool keep(const char *text, size_t n, json_int_t *place)
{
    unsigned char hash[crypto_generichash_BYTES];
    char name[2 * sizeof hash + 1];
    crypto_generichash(hash, sizeof hash, (const unsigned char *)text, n, NULL, 0);
    sodium_bin2hex(name, sizeof name, hash, sizeof hash);
    const json_t *known = json_object_get(store.places, name);
    *place = known ? json_integer_value(known) : store.end;
    if (known)
        return true;
    if (!write_all(text, n)) {
        give_up("a file for runs");
        return false;
    }
    store.end += (json_int_t)n;
    json_object_set_new(store.places, name, json_integer(*place));
    return true;
}

/* ---- a part of a run ------------------------------------------------------------------------- */

/* What the run has in the place of a spilled part; NULL: the part is not spilled. */
static const json_t *stub_of(const json_t *part)
{
    const json_t *stub = json_object_get(part, "spilled");
    return store.mark && json_array_get(stub, MARK) == store.mark ? stub : NULL;
}

/* @owned; NULL: it stays. */
static json_t *spill_part(const json_t *part)
{
    const bool has_objects = json_is_object(part) || json_is_object(json_array_get(part, 0));
    if (!(has_objects || json_array_size(part) > 2 * N_FIRST) || stub_of(part) || !is_open())
        return NULL;
    char *text = json_dumps(part, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_int_t place;
    json_t *stub = NULL;
    if (text && keep(text, strlen(text), &place))
        stub = json_pack("[O, I, I, I]", store.mark, place, (json_int_t)strlen(text),
                         (json_int_t)json_array_size(part));
    for (size_t i = 0; stub && !has_objects && i < N_FIRST; i++)
        json_array_append(stub, json_array_get(part, i));
    free(text);
    return stub ? json_pack("{s:o}", "spilled", stub) : NULL;
}

/* @owned; NULL for NULL. */
static json_t *whole_part(const json_t *part)
{
    const json_t *stub = stub_of(part);
    if (!stub)
        return json_incref((json_t *)(uintptr_t)part);
    const size_t n = (size_t)json_integer_value(json_array_get(stub, BYTES));
    const off_t place = json_integer_value(json_array_get(stub, PLACE));
    char *text = malloc(n + 1);
    errno = 0;
    json_t *read =
        text && pread(store.fd, text, n, place) == (ssize_t)n ? json_loadb(text, n, 0, NULL) : NULL;
    if (!read)
        dpb_log(DPB_LOG_ERROR, "runs cannot be read back from the temporary file: %s",
                strerror(errno));
    free(text);
    return read;
}

json_t *dpb_run_part(const json_t *run, const char *path)
{
    return whole_part(dpb_json_at(run, path));
}

size_t dpb_run_size(const json_t *run, const char *path)
{
    const json_t *list = dpb_json_at(run, path), *stub = stub_of(list);
    return stub ? (size_t)json_integer_value(json_array_get(stub, ITEMS)) : json_array_size(list);
}

double dpb_run_item(const json_t *run, const char *path, size_t i)
{
    const json_t *list = dpb_json_at(run, path), *stub = stub_of(list);
    if (!stub || i < N_FIRST)
        return dpb_json_item(stub ? stub : list, stub ? FIRST + i : i);
    json_t *all = whole_part(list);
    const double number = dpb_json_item(all, i);
    json_decref(all);
    return number;
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Puts the other's parts where they are equal.
 * NOLINTNEXTLINE(misc-no-recursion): as deep as the document */
static void share(json_t *value, const json_t *other)
{
    for (void *i = json_object_iter(value); i; i = json_object_iter_next(value, i)) {
        json_t *own = json_object_iter_value(i),
               *its = json_object_get(other, json_object_iter_key(i));
        if (strcmp(json_object_iter_key(i), "cell") == 0)
            continue; /* a sweep of several setups writes into it */
        if (own != its && json_equal(own, its))
            json_object_iter_set(value, i, its);
        else if (own != its)
            share(own, its);
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        json_t *own = json_array_get(value, i), *its = json_array_get(other, i);
        if (own != its && json_equal(own, its))
            json_array_set(value, i, its);
        else if (own != its)
            share(own, its);
    }
}

void dpb_run_spill(json_t *run, const json_t *like)
{
    for (size_t i = 0; i < PARTS; i++) {
        json_t *of = spilled_parts[i].of ? json_object_get(run, spilled_parts[i].of) : run;
        json_t *made = spill_part(json_object_get(of, spilled_parts[i].key));
        if (made)
            json_object_set_new(of, spilled_parts[i].key, made);
    }
    share(run, like);
}

json_t *dpb_run_whole(const json_t *run)
{
    json_t *whole = json_copy((json_t *)(uintptr_t)run);
    for (size_t i = 0; i < PARTS && whole; i++) {
        const char *name = spilled_parts[i].of, *key = spilled_parts[i].key;
        json_t *of = name ? json_object_get(whole, name) : whole;
        if (!stub_of(json_object_get(of, key)))
            continue;
        json_t *part = whole_part(json_object_get(of, key)), *copy = name ? json_copy(of) : NULL;
        if (name)
            json_object_set_new(whole, name, copy);
        if (json_object_set_new(name ? copy : whole, key, part) != 0) {
            json_decref(whole);
            whole = NULL;
        }
    }
    return whole;
}

/* ---- a document ------------------------------------------------------------------------------ */

enum { FLAGS = JSON_INDENT(1) | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY };

/* A value that stands `depth` deep in what is written. */
struct inner {
    json_dump_callback_t write;
    void *context;
    size_t depth;
};

static int write_inner(const char *text, size_t n, void *inner_)
{
    const struct inner *inner = inner_;
    int failed = 0;
    for (size_t line; n > 0 && failed == 0; text += line, n -= line) {
        const char *end = memchr(text, '\n', n);
        line = end ? (size_t)(end - text) + 1 : n;
        failed = inner->write(text, line, inner->context);
        if (end && failed == 0)
            failed = inner->write("  ", inner->depth, inner->context);
    }
    return failed;
}

static bool dump_runs(const json_t *runs, struct inner *inner)
{
    inner->depth = 2;
    bool good = write_inner("[", 1, inner) == 0;
    for (size_t i = 0; good && i < json_array_size(runs); i++) {
        json_t *run = dpb_run_whole(json_array_get(runs, i));
        good = run && write_inner(i == 0 ? "\n" : ",\n", i == 0 ? 1 : 2, inner) == 0 &&
               json_dump_callback(run, write_inner, inner, FLAGS) == 0;
        json_decref(run);
    }
    inner->depth = 1;
    return good && write_inner("\n]", 2, inner) == 0;
}

bool dpb_document_dump(const json_t *document, json_dump_callback_t write, void *context)
{
    struct inner inner = {write, context, 1};
    const char *before = "{\n";
    bool good = true;
    if (json_array_size(json_object_get(document, "runs")) == 0) { /* perhaps a run */
        json_t *whole = dpb_run_whole(document);
        good = whole && json_dump_callback(whole, write, context, FLAGS) == 0;
        json_decref(whole);
        return good;
    }
    dpb_each_member(document, key, value) {
        const bool is_runs = strcmp(key, "runs") == 0;
        json_t *name = json_string(key);
        good = good && name && write_inner(before, strlen(before), &inner) == 0 &&
               json_dump_callback(name, write_inner, &inner, FLAGS) == 0 &&
               write_inner(": ", 2, &inner) == 0 &&
               (is_runs ? dump_runs(value, &inner)
                        : json_dump_callback(value, write_inner, &inner, FLAGS) == 0);
        before = ",\n";
        json_decref(name);
    }
    return good && write("\n}", 2, context) == 0;
}
