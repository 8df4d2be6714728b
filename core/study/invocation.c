/* invocation.c - result.invocation and result.inputs: how dpbench was called, and what the files
 * are that it read. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/log.h"
#include "study/json.h"
#include "study/result.h"

extern char **environ;

/* Settings that name files which a run reads. */
static const struct {
    const char *section, *key;
} inputs[] = {{"data", "path"}, {"checkpoint", "load"}};
enum { N_INPUTS = sizeof inputs / sizeof inputs[0] };

/* ---- how it was called --------------------------------------------------------------------- */

static json_t *describe_command(void)
{
    json_t *words = json_array();
    char *word = NULL;
    size_t capacity = 0;
    FILE *file = fopen("/proc/self/cmdline", "re");
    while (file != NULL && getdelim(&word, &capacity, '\0', file) > 0)
        json_array_append_new(words, dpb_json_string(word));
    free(word);
    if (file != NULL)
        fclose(file);
    return words;
}

static json_t *describe_environment(void)
{
    static const char *const prefixes[] = {
        "OMP_",  "GOMP_",  "KMP_",   "DNNL_", "ONEDNN_",        "MALLOC_",    "DPBENCH",
        "CUDA_", "CUDNN_", "CUBLAS", "NCCL_", "GLIBC_TUNABLES", "LD_PRELOAD", "LD_LIBRARY_PATH"};
    json_t *variables = json_object();
    for (char **entry = environ; *entry != NULL; entry++)
        for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
            const char *value = strchr(*entry, '=');
            char name[256];
            if (value == NULL || strncmp(*entry, prefixes[i], strlen(prefixes[i])) != 0)
                continue;
            snprintf(name, sizeof name, "%.*s", (int)(value - *entry), *entry);
            json_object_set_new(variables, name, dpb_json_string(value + 1));
        }
    return variables;
}

json_t *dpb_result_invocation(void)
{
    char directory[PATH_MAX];
    bool found = getcwd(directory, sizeof directory) != NULL;
    return json_pack("{s:o, s:o, s:o}", "command", describe_command(), "directory",
                     found ? dpb_json_string(directory) : json_null(), "environment",
                     describe_environment());
}

dpb_status dpb_result_locate(const json_t *document, struct dpb_config *config)
{
    char here[PATH_MAX], path[2 * PATH_MAX];
    const char *there = dpb_json_text(document, "invocation.directory", NULL);
    if (there == NULL || getcwd(here, sizeof here) == NULL || strcmp(here, there) == 0)
        return DPB_OK;
    for (size_t i = 0; i < N_INPUTS; i++) {
        const struct dpb_setting *setting =
            dpb_config_get(config, inputs[i].section, inputs[i].key);
        if (setting == NULL || setting->value[0] == '/' || setting->value[0] == '\0')
            continue;
        snprintf(path, sizeof path, "%s/%s", there, setting->value);
        dpb_log(DPB_LOG_INFO, "%s.%s = %s is taken from %s, where the result was made",
                inputs[i].section, inputs[i].key, setting->value, there);
        DPB_TRY(dpb_config_set(config, inputs[i].section, inputs[i].key, path, setting->origin));
    }
    return DPB_OK;
}

/* ---- what it read -------------------------------------------------------------------------- */

/* Files and directories that a fingerprint goes over; more than that are left out and counted. */
enum { DEPTH = 2, BLOCK = 65536, MOST_FILES = 10000 };

struct print {
    uLong crc;
    uint64_t files, bytes; /* of those that were looked at */
};

static void add_bytes(struct print *print, const void *bytes, size_t n)
{
    print->crc = crc32(print->crc, bytes, (uInt)n);
}

/* Its name, size, first and last block: enough to tell data apart, quick for those of any size. */
static void add_file(struct print *print, const char *path, off_t size)
{
    unsigned char block[BLOCK];
    FILE *file = fopen(path, "re");
    print->files++;
    print->bytes += (uint64_t)size;
    add_bytes(print, &size, sizeof size);
    for (int end = 0; end < 2 && file != NULL; end++) {
        if (end == 1 && (size <= BLOCK || fseeko(file, size - BLOCK, SEEK_SET) != 0))
            break;
        add_bytes(print, block, fread(block, 1, BLOCK, file));
    }
    if (file != NULL)
        fclose(file);
}

static void add_path(struct print *print, const char *path, int depth)
{
    struct stat info;
    struct dirent **entries;
    if (print->files >= MOST_FILES || stat(path, &info) != 0)
        return;
    if (S_ISREG(info.st_mode))
        add_file(print, path, info.st_size);
    int n = S_ISDIR(info.st_mode) && depth > 0 ? scandir(path, &entries, NULL, alphasort) : -1;
    for (int i = 0; i < n; i++) {
        char *below = NULL;
        const char *name = entries[i]->d_name;
        add_bytes(print, name, strlen(name) + 1);
        if (name[0] != '.' && asprintf(&below, "%s/%s", path, name) >= 0)
            add_path(print, below, depth - 1);
        free(below);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static json_t *describe_input(const char *path)
{
    char place[PATH_MAX], text[16];
    struct print print = {.crc = crc32(0, NULL, 0)};
    if (path[0] == '\0')
        return json_null();
    if (realpath(path, place) == NULL)
        return json_pack("{s:o, s:n, s:n, s:n}", "path", dpb_json_string(path), "files", "bytes",
                         "fingerprint");
    add_path(&print, place, DEPTH);
    snprintf(text, sizeof text, "0x%08lx", (unsigned long)print.crc);
    return json_pack("{s:o, s:I, s:I, s:s}", "path", dpb_json_string(place), "files",
                     (json_int_t)print.files, "bytes", (json_int_t)print.bytes, "fingerprint",
                     text);
}

json_t *dpb_result_inputs(const struct dpb_experiment *experiment)
{
    json_t *config = dpb_experiment_effective(experiment), *found = json_object();
    for (size_t i = 0; i < N_INPUTS; i++) {
        char name[64], path[80];
        snprintf(name, sizeof name, "%s.%s", inputs[i].section, inputs[i].key);
        snprintf(path, sizeof path, "%s.value", name);
        json_object_set_new(found, name, describe_input(dpb_json_text(config, path, "")));
    }
    json_decref(config);
    return found;
}
