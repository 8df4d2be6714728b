/* invocation.c - see invocation.h. */
#include "record/invocation.h"

#include <dirent.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <hwloc.h>
#include <limits.h>
#include <linux/magic.h>
#include <sodium/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "build_info.h"
#include "base/json.h"
#include "launch/hosts.h"
#include "plan/delay.h"
#include "plugin/plugins.h"

extern char **environ;

/* Settings that name files which every run may read; a plugin's are found by their unit. */
static const char *const inputs[][2] = {{"data", "path"}, {"checkpoint", "load"}};
enum { N_INPUTS = sizeof inputs / sizeof inputs[0] };

/* ---- how it was called --------------------------------------------------------------------- */

static json_t *describe_command(void)
{
    json_t *words = json_array();
    char *word = NULL;
    size_t capacity = 0;
    FILE *file = fopen("/proc/self/cmdline", "re");
    while (file && getdelim(&word, &capacity, '\0', file) > 0)
        json_array_append_new(words, dpb_json_string(word));
    free(word);
    if (file)
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
            /* Its processes differ between clusters that are alike. */
            const bool hosts = dpb_begins_with(*entry, DPB_HOSTS_VARIABLE "=");
            if (!value || hosts || !dpb_begins_with(*entry, prefixes[i]))
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

static dpb_status locate(struct dpb_config *config, const char *there, const char *section,
                         const char *key)
{
    char path[2 * PATH_MAX], trace[PATH_MAX];
    const struct dpb_setting *setting = dpb_config_get(config, section, key);
    const bool in_trace = setting && dpb_delay_file(setting->value, trace, sizeof trace);
    const char *file = !setting ? "" : in_trace ? trace : setting->value;
    if (file[0] == '/' || file[0] == '\0')
        return DPB_OK;
    snprintf(path, sizeof path, "%s/%s", there, file);
    if (access(path, F_OK) != 0)
        return DPB_OK; /* the name of something that came with dpbench, or gone */
    snprintf(path, sizeof path, in_trace ? "trace(%s/%s)" : "%s/%s", there, file);
    dpb_log(DPB_LOG_INFO, "%s.%s = %s is taken from %s, where the result was made", section, key,
            setting->value, there);
    return dpb_config_set(config, section, key, path, setting->origin);
}

dpb_status dpb_result_locate(const json_t *document, struct dpb_config *config)
{
    char here[PATH_MAX], section[64];
    const char *there = dpb_json_text(document, "invocation.directory", NULL);
    if (!there || !getcwd(here, sizeof here) || strcmp(here, there) == 0)
        return DPB_OK;
    for (size_t i = 0; i < N_INPUTS; i++)
        DPB_TRY(locate(config, there, inputs[i][0], inputs[i][1]));
    dpb_each_member(json_object_get(document, "inputs"), name, entry) {
        const char *dot = strchr(name, '.');
        snprintf(section, sizeof section, "%.*s", dot ? (int)(dot - name) : 0, name);
        if (dot && json_is_object(entry)) /* those above are there already */
            DPB_TRY(locate(config, there, section, dot + 1));
    }
    return DPB_OK;
}

/* ---- what it read -------------------------------------------------------------------------- */

/* Filesystems of the kernel's own making: linux/magic.h. */
static const uint32_t made_up[] = {
    PROC_SUPER_MAGIC,    SYSFS_MAGIC,      DEBUGFS_MAGIC, TRACEFS_MAGIC,      CGROUP_SUPER_MAGIC,
    CGROUP2_SUPER_MAGIC, SECURITYFS_MAGIC, BPF_FS_MAGIC,  DEVPTS_SUPER_MAGIC, PSTOREFS_MAGIC};

/* A fingerprint goes over this many files; more are left out. A directory with more names, or data
 * that takes longer to look at, has none. */
enum { DEPTH = 2, BLOCK = 65536, MOST_FILES = 10000, MOST_NAMES = 1 << 20 };
#define MOST_NS INT64_C(5000000000)

struct print {
    uLong crc;
    uint64_t files, bytes; /* of those that were looked at */
    int64_t until_ns;
    const char *why_none; /* NULL: it is a fingerprint */
};

static void add_bytes(struct print *print, const void *bytes, size_t n)
{
    print->crc = crc32(print->crc, bytes, (uInt)n);
}

/* Its size, first and last block: enough to distinguish data, quick for data of any size. A file of
 * /proc or /sys looks regular; to read it may block, or change the system. */
static void add_file(struct print *print, const char *path)
{
    unsigned char block[BLOCK];
    struct stat info;
    struct statfs system;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool opened =
        fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && fstatfs(fd, &system) == 0;
    for (size_t i = 0; opened && i < sizeof made_up / sizeof made_up[0]; i++)
        opened = (uint32_t)system.f_type != made_up[i];
    const off_t size = opened ? info.st_size : 0;
    if (opened) {
        print->files++;
        print->bytes += (uint64_t)size;
        add_bytes(print, &size, sizeof size);
    }
    for (int end = 0; end < (size > BLOCK ? 2 : 1) && size > 0; end++) {
        ssize_t n = pread(fd, block, BLOCK, end == 0 ? 0 : size - BLOCK);
        add_bytes(print, block, n > 0 ? (size_t)n : 0);
    }
    if (fd >= 0)
        close(fd);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a directory, in order; hidden ones too. @owned, each and all. */
static size_t list(struct print *print, const char *path, char ***names)
{
    size_t n = 0, capacity = 0;
    DIR *directory = opendir(path);
    struct dirent *entry;
    *names = NULL;
    while (directory && (entry = readdir(directory))) {
        if (n == MOST_NAMES || dpb_now_ns() > print->until_ns) {
            print->why_none = n == MOST_NAMES ? "a directory has more than 1,048,576 names"
                                              : "it takes longer than 5 s";
            break;
        }
        if (n == capacity) {
            size_t more = capacity > 0 ? 2 * capacity : 64;
            char **grown = realloc(*names, more * sizeof *grown);
            if (!grown)
                break;
            *names = grown;
            capacity = more;
        }
        if (!((*names)[n] = strdup(entry->d_name)))
            break;
        n++;
    }
    if (directory)
        closedir(directory);
    if (n > 0)
        qsort(*names, n, sizeof **names, by_name);
    return n;
}

static void add_path(struct print *print, const char *path, int depth)
{
    struct stat info;
    char **names;
    if (dpb_now_ns() > print->until_ns)
        print->why_none = "it takes longer than 5 s";
    if (print->files >= MOST_FILES || print->why_none || stat(path, &info) != 0)
        return;
    if (S_ISREG(info.st_mode))
        add_file(print, path);
    if (!S_ISDIR(info.st_mode) || depth == 0)
        return;
    const size_t n = list(print, path, &names);
    for (size_t i = 0; i < n; i++) {
        char *below = NULL;
        add_bytes(print, names[i], strlen(names[i]) + 1);
        if (names[i][0] != '.' && asprintf(&below, "%s/%s", path, names[i]) >= 0)
            add_path(print, below, depth - 1);
        free(below);
        free(names[i]);
    }
    free(names);
}

static json_t *describe_input(const char *name, const char *path)
{
    char place[PATH_MAX], text[16];
    struct print print = {.crc = crc32(0, NULL, 0), .until_ns = dpb_now_ns() + MOST_NS};
    if (!path || path[0] == '\0')
        return json_null();
    if (!realpath(path, place))
        return json_pack("{s:o, s:n, s:n, s:n}", "path", dpb_json_string(path), "files", "bytes",
                         "fingerprint");
    add_path(&print, place, DEPTH);
    if (print.why_none)
        dpb_warn("no_fingerprint", "%s = %s has no fingerprint: %s", name, path, print.why_none);
    snprintf(text, sizeof text, "0x%08lx", (unsigned long)print.crc);
    return json_pack("{s:o, s:I, s:I, s:o}", "path", dpb_json_string(place), "files",
                     (json_int_t)print.files, "bytes", (json_int_t)print.bytes, "fingerprint",
                     print.why_none ? json_null() : json_string(text));
}

/* Core's own tables have files that a run writes, too. */
bool dpb_result_is_input(const struct dpb_option_table *table, const struct dpb_option *row)
{
    bool named = false;
    for (size_t i = 0; i < N_INPUTS; i++)
        named = named ||
                (strcmp(table->section, inputs[i][0]) == 0 && strcmp(row->name, inputs[i][1]) == 0);
    bool plugins = table->owner && row->unit &&
                   (strcmp(row->unit, "file") == 0 || strcmp(row->unit, "directory") == 0);
    return row->type == DPB_OPT_STRING && (named || plugins);
}

json_t *dpb_result_inputs(const struct dpb_experiment *experiment)
{
    char trace[PATH_MAX];
    const bool traced = dpb_delay_file(experiment->settings.run.delay, trace, sizeof trace);
    json_t *found = json_pack("{s:n, s:n, s:o}", "data.path", "checkpoint.load", "run.delay",
                              describe_input("run.delay", traced ? trace : NULL));
    for (size_t i = 0; i < experiment->n_tables; i++) {
        const struct dpb_option_table *table = &experiment->tables[i];
        for (const struct dpb_option *row = table->rows; row->name; row++) {
            char name[128];
            if (!dpb_result_is_input(table, row))
                continue;
            const char *const *value = (const void *)((const uint8_t *)table->values + row->offset);
            snprintf(name, sizeof name, "%s.%s", table->section, row->name);
            json_object_set_new(found, name, describe_input(name, *value));
        }
    }
    return found;
}

/* ---- what it was made with ------------------------------------------------------------------- */

static json_t *library(const char *built, const char *loaded)
{
    return json_pack("{s:s?, s:s?}", "built", built, "loaded", loaded);
}

/* crc32 of a whole file; null where it cannot be read. */
static json_t *checksum_of(const char *path)
{
    unsigned char block[65536];
    char text[16];
    uLong crc = crc32(0, NULL, 0);
    FILE *file = fopen(path, "re");
    if (!file)
        return json_null();
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
        crc = crc32(crc, block, (uInt)n);
    bool whole = !ferror(file);
    fclose(file);
    snprintf(text, sizeof text, "0x%08lx", (unsigned long)crc);
    return whole ? json_string(text) : json_null();
}

/* The shared object of a plugin. */
static json_t *file_of(const struct dpb_plugin *plugin)
{
    const char *path = dpb_plugin_path(plugin);
    return json_pack("{s:o, s:o, s:b}",                                  //
                     "path", path ? dpb_json_string(path) : json_null(), //
                     "crc32", path ? checksum_of(path) : json_null(),    //
                     "own", dpb_plugin_is_own(plugin));
}

static json_t *plugin_to_json(const struct dpb_plugin *plugin)
{
    json_t *libraries = json_object();
    for (const struct dpb_library *l = plugin->libraries; l && l->name; l++)
        json_object_set_new(libraries, l->name, library(l->built, l->loaded));
    return json_pack("{s:s, s:s, s:o, s:o}", "name", plugin->name, "version", plugin->version,
                     "file", file_of(plugin), "libraries", libraries);
}

void dpb_result_add_plugins(const struct dpb_experiment *experiment, json_t *plugins)
{
    for (size_t kind = 0; kind < DPB_PLUGIN_KINDS; kind++) {
        const struct dpb_plugin *plugin = experiment->plugins[kind];
        char name[256];
        if (!plugin)
            continue;
        snprintf(name, sizeof name, "%s '%s'", dpb_plugin_kind_name[kind], plugin->name);
        if (!json_object_get(plugins, name))
            json_object_set_new(plugins, name, plugin_to_json(plugin));
    }
}

/* hwloc counts 0x00020900 for 2.9. */
static void hwloc_text(unsigned version, char *text, size_t capacity)
{
    snprintf(text, capacity, "%u.%u.%u", version >> 16, (version >> 8) & 0xff, version & 0xff);
}

json_t *dpb_result_versions(const struct dpb_experiment *experiment)
{
    struct utsname kernel = {0};
    char program[PATH_MAX] = "";
    char hwloc_built[32], hwloc_loaded[32], kernel_text[160];
    uname(&kernel);
    snprintf(kernel_text, sizeof kernel_text, "%s %s", kernel.sysname, kernel.release);
    hwloc_text(HWLOC_API_VERSION, hwloc_built, sizeof hwloc_built);
    hwloc_text(hwloc_get_api_version(), hwloc_loaded, sizeof hwloc_loaded);
    json_t *plugins = json_object();
    for (size_t kind = 0; kind < DPB_PLUGIN_KINDS; kind++)
        if (experiment->plugins[kind])
            json_object_set_new(plugins, dpb_plugin_kind_name[kind],
                                plugin_to_json(experiment->plugins[kind]));
    dpb_own_program(program, sizeof program);
    json_t *build = json_pack("{s:s?, s:s, s:o}", "git", DPB_BUILD_GIT, "flags", DPB_BUILD_FLAGS,
                              "crc32", checksum_of(program));
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}",                 //
                     "dpbench", DPB_VERSION,                                               //
                     "build", build,                                                       //
                     "compiler", __VERSION__,                                              //
                     "libc", gnu_get_libc_version(),                                       //
                     "kernel", kernel_text,                                                //
                     "jansson", library(JANSSON_VERSION, jansson_version_str()),           //
                     "hwloc", library(hwloc_built, hwloc_loaded),                          //
                     "libsodium", library(SODIUM_VERSION_STRING, sodium_version_string()), //
                     "zlib", library(ZLIB_VERSION, zlibVersion()),                         //
                     "plugins", plugins);
}
