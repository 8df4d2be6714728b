/* result_file.c - see result_file.h. */
#include "record/result_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/output.h"
#include "base/text.h"

enum {
    MAX_SAME_SECOND = 1000, /* results of one name made in the same second */
    MAX_WORD = 64           /* bytes of a run's or a strategy's name in that of a file */
};

/* ---- directories --------------------------------------------------------------------------- */

/* Makes `path` and the directories above; *made gets the length of its first part that was not
 * there (0: all was). errno on failure. */
static bool make_directories(const char *path, size_t *made)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    *made = 0;
    if (length >= sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        char kept = part[i];
        part[i] = '\0';
        if (mkdir(part, 0777) == 0)
            *made = *made == 0 ? i : *made;
        else if (errno != EEXIST)
            return false;
        part[i] = kept;
    }
    return true;
}

/* Removes the directories that make_directories made. */
static void remove_directories(const char *path, size_t made)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (size_t length = strlen(part); made > 0 && length >= made; length--)
        if (part[length] == '/' || part[length] == '\0') {
            part[length] = '\0';
            rmdir(part);
        }
}

dpb_status dpb_result_probe(const char *path, const char *results)
{
    char directory[PATH_MAX], probe[PATH_MAX];
    if (!path && results[0] == '\0')
        return DPB_OK;
    if (path)
        DPB_TRY(dpb_output_check("--output", path));
    if (path && dpb_output_is_descriptor(path))
        return DPB_OK;
    if (path)
        dpb_output_directory(path, directory);
    else if (snprintf(directory, sizeof directory, "%s", results) >= (int)sizeof directory)
        return dpb_fail(DPB_USAGE, "run.results: the name of the directory is too long");

    size_t made = 0;
    int fd = -1;
    const long pid = (long)getpid();
    bool possible = make_directories(directory, &made);
    const int length =
        path && dpb_output_place(path, probe)
            ? snprintf(probe + strlen(probe), sizeof probe - strlen(probe), ".%ld.tmp", pid)
            : snprintf(probe, sizeof probe, "%s/.dpbench-probe-%ld", directory, pid);
    if (possible && length < (int)sizeof probe)
        fd = open(probe, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int error = errno;
    if (fd >= 0) {
        close(fd);
        unlink(probe);
    }
    remove_directories(directory, made);
    if (fd >= 0)
        return DPB_OK;
    return dpb_fail(DPB_USAGE,
                    "results cannot be written to %s: %s; choose a directory by run.results=DIR "
                    "or a file by --output FILE",
                    path ? path : directory, strerror(error));
}

/* ---- writing ------------------------------------------------------------------------------- */

/* Into a file, in large pieces. */
struct sink {
    struct dpb_output *output;
    dpb_status status;
    size_t n;
    char bytes[65536];
};

static int flush(struct sink *sink)
{
    if (sink->status == DPB_OK)
        sink->status = dpb_output_add(sink->output, sink->bytes, sink->n);
    sink->n = 0;
    return sink->status == DPB_OK ? 0 : -1;
}

static int take(const char *text, size_t n, void *sink_)
{
    struct sink *sink = sink_;
    while (n > 0) {
        const size_t room = sizeof sink->bytes - sink->n, part = n < room ? n : room;
        memcpy(sink->bytes + sink->n, text, part);
        sink->n += part;
        text += part;
        n -= part;
        if (sink->n == sizeof sink->bytes && flush(sink) != 0)
            return -1;
    }
    return 0;
}

static bool dump_plain(const json_t *document, json_dump_callback_t write, void *context)
{
    return json_dump_callback(document, write, context, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) ==
           0;
}

/* The document in a file that has no name yet. */
static dpb_status write_unnamed(const json_t *document, dpb_dump_document *dump, const char *path,
                                struct dpb_output *output)
{
    struct sink *sink = calloc(1, sizeof *sink);
    DPB_TRY(dpb_allocated(sink));
    sink->output = output;
    sink->status = dpb_output_open(path, output);
    const bool opened = sink->status == DPB_OK;
    const bool good = opened && (dump ? dump : dump_plain)(document, take, sink) &&
                      take("\n", 1, sink) == 0 && flush(sink) == 0;
    dpb_status status = sink->status;
    free(sink);
    if (good || !opened)
        return status;
    dpb_output_drop(output);
    return status != DPB_OK ? status
                            : dpb_fail(DPB_NO_MEMORY,
                                       "the result cannot be written: out of memory, or see above");
}

/* A part of a file's name: characters that may trouble a shell become `_`. A long one is cut: a
 * name that the file system refuses would be found out after the run. */
static void append_word(char *name, size_t capacity, const char *word)
{
    size_t length = strlen(name);
    for (size_t i = 0; *word != '\0' && i < MAX_WORD && length + 1 < capacity; word++, i++)
        name[length++] = isalnum((unsigned char)*word) || strchr("._-", *word) ? *word : '_';
    name[length] = '\0';
}

static void file_stem(const json_t *document, const char *results, const char *run_name, char *stem,
                      size_t capacity)
{
    char workers[32] = "", stamp[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    const json_t *n = dpb_json_at(document, "world.workers");
    if (n)
        snprintf(workers, sizeof workers, "-w%lld", (long long)json_integer_value(n));
    snprintf(stem, capacity, "%s/", results);
    size_t at = strlen(stem);
    append_word(stem, capacity, run_name[0] != '\0' ? run_name : "unnamed");
    if (stem[at] == '-' || stem[at] == '.') /* an option to most programs, hidden from others */
        stem[at] = '_';
    append_word(stem, capacity, "-");
    append_word(stem, capacity,
                dpb_json_text(document, "strategy.name",
                              json_object_get(document, "tune") ? "tune" : "sweep"));
    append_word(stem, capacity, workers);
    append_word(stem, capacity, "-");
    append_word(stem, capacity, stamp);
}

static dpb_status keep_new(struct dpb_output *output, const char *stem, char *written)
{
    bool taken = true;
    dpb_status status = DPB_OK;
    for (int i = 1; i <= MAX_SAME_SECOND && status == DPB_OK && taken; i++) {
        if (i == 1)
            snprintf(written, PATH_MAX, "%s.json", stem);
        else
            snprintf(written, PATH_MAX, "%s-%d.json", stem, i);
        status = dpb_output_keep_new(output, written, &taken);
    }
    dpb_output_drop(output);
    return status == DPB_OK && taken ? dpb_fail(DPB_IO, "%s: all its names are taken", stem)
                                     : status;
}

dpb_status dpb_result_begin(const json_t *document, const char *path, const char *results,
                            const char *run_name, char *directory)
{
    char stem[PATH_MAX - 64], parent[PATH_MAX];
    size_t made;
    directory[0] = '\0';
    if (!path && results[0] == '\0')
        return DPB_OK;
    if (!path)
        file_stem(document, results, run_name, stem, sizeof stem);
    else if (snprintf(stem, sizeof stem, "%s", path) >= (int)sizeof stem)
        return dpb_fail(DPB_IO, "--output: the name is too long");
    dpb_output_directory(stem, parent);
    int error = make_directories(parent, &made) ? EEXIST : errno;
    for (int i = 1; i <= MAX_SAME_SECOND && error == EEXIST; i++) {
        if (i == 1)
            snprintf(directory, PATH_MAX, "%s.runs", stem);
        else
            snprintf(directory, PATH_MAX, "%s-%d.runs", stem, i);
        error = mkdir(directory, 0777) == 0 ? 0 : errno;
    }
    if (error == 0)
        return DPB_OK;
    dpb_status status =
        dpb_fail(DPB_IO, "%s.runs: the directory cannot be made: %s", stem, strerror(error));
    directory[0] = '\0';
    return status;
}

bool dpb_result_kept(const char *directory, size_t number, char path[PATH_MAX])
{
    int n = number == 0 ? snprintf(path, PATH_MAX, "%s/sweep.json", directory)
                        : snprintf(path, PATH_MAX, "%s/%06zu.json", directory, number);
    return n > 0 && n < PATH_MAX;
}

dpb_status dpb_result_keep(const json_t *document, const char *directory, size_t number)
{
    char path[PATH_MAX], written[PATH_MAX];
    if (directory[0] == '\0')
        return DPB_OK;
    if (!dpb_result_kept(directory, number, path))
        return dpb_fail(DPB_IO, "%s: the name is too long", directory);
    return dpb_result_write(document, NULL, path, "", "", written);
}

dpb_status dpb_result_write(const json_t *document, dpb_dump_document *dump, const char *path,
                            const char *results, const char *run_name, char *written)
{
    char directory[PATH_MAX], stem[PATH_MAX - 64], name[PATH_MAX] = "";
    struct dpb_output output;
    size_t made;
    written[0] = '\0';
    if (!path && results[0] == '\0')
        return DPB_OK;
    if (path)
        dpb_output_directory(path, directory);
    else
        snprintf(directory, sizeof directory, "%s", results);
    if (path && snprintf(name, sizeof name, "%s", path) >= PATH_MAX)
        return dpb_fail(DPB_IO, "--output: the name is too long");
    if (!make_directories(directory, &made))
        return dpb_fail(DPB_IO, "%s: the directory cannot be made: %s", directory, strerror(errno));
    file_stem(document, results ? results : "", run_name ? run_name : "", stem, sizeof stem);
    DPB_TRY(write_unnamed(document, dump, path ? path : stem, &output));
    DPB_TRY(path ? dpb_output_keep(&output) : keep_new(&output, stem, name));
    memcpy(written, name, sizeof name);
    return DPB_OK;
}
