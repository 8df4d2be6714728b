/* versions.c - result.versions: what a run was made with, built against and loaded. */
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <hwloc.h>
#include <sodium/version.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <zlib.h>

#include "build_info.h"
#include "plugin/plugins.h"
#include "study/json.h"
#include "study/result.h"

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

/* The shared object that a plugin's struct lies in. */
static json_t *file_of(const struct dpb_plugin *plugin)
{
    Dl_info info;
    bool found = dladdr(plugin, &info) != 0 && info.dli_fname;
    return json_pack("{s:o, s:o}",                                                  //
                     "path", found ? dpb_json_string(info.dli_fname) : json_null(), //
                     "crc32", found ? checksum_of(info.dli_fname) : json_null());
}

static json_t *plugin_to_json(const struct dpb_plugin *plugin)
{
    json_t *libraries = json_object();
    for (const struct dpb_library *l = plugin->libraries; l && l->name; l++)
        json_object_set_new(libraries, l->name, library(l->built, l->loaded));
    return json_pack("{s:s, s:s, s:o, s:o}", "name", plugin->name, "version", plugin->version,
                     "file", file_of(plugin), "libraries", libraries);
}

/* hwloc counts 0x00020900 for 2.9. */
static void hwloc_text(unsigned version, char *text, size_t capacity)
{
    snprintf(text, capacity, "%u.%u.%u", version >> 16, (version >> 8) & 0xff, version & 0xff);
}

json_t *dpb_result_versions(const struct dpb_experiment *experiment)
{
    struct utsname kernel = {0};
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
    json_t *build = json_pack("{s:s?, s:s, s:o}", "git", DPB_BUILD_GIT, "flags", DPB_BUILD_FLAGS,
                              "crc32", checksum_of("/proc/self/exe"));
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
