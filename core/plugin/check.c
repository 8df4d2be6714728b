/*
 * check.c - finds the reason against a plugin, in the struct that its entry gave.
 */
#include "plugin/check.h"

#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "base/text.h"

const char *const dpb_plugin_kind_name[DPB_PLUGIN_KINDS] = {"model", "data", "device", "comm",
                                                            "codec"};
const struct dpb_plugin_place dpb_plugin_place[DPB_PLUGIN_KINDS] = {
    {"model", "name"}, {"data", "name"}, {"device", "name"}, {"comm", "name"}, {"comm", "codec"}};

uint32_t dpb_plugin_kinds_in(const char *section)
{
    uint32_t kinds = 0;
    for (uint32_t kind = 0; kind < DPB_PLUGIN_KINDS; kind++)
        if (strcmp(dpb_plugin_place[kind].section, section) == 0)
            kinds |= 1u << kind;
    return kinds;
}

struct hook {
    const char *name;
    size_t offset;
};

#define HOOK(OPS, NAME) #NAME, offsetof(struct OPS, NAME)

/* clang-format off */
static const struct hook model_hooks[] = {
    {HOOK(dpb_model_ops, describe)}, {HOOK(dpb_model_ops, build)}, {NULL, 0}};
static const struct hook data_hooks[] = {
    {HOOK(dpb_data_ops, open)}, {HOOK(dpb_data_ops, fetch)}, {HOOK(dpb_data_ops, close)},
    {NULL, 0}};
static const struct hook device_hooks[] = {
    {HOOK(dpb_device_ops, open)},     {HOOK(dpb_device_ops, memory_needed)},
    {HOOK(dpb_device_ops, compile)},  {HOOK(dpb_device_ops, forward)},
    {HOOK(dpb_device_ops, backward)}, {HOOK(dpb_device_ops, inspect)},
    {HOOK(dpb_device_ops, release)},  {HOOK(dpb_device_ops, close)},
    {NULL, 0}};
static const struct hook comm_hooks[] = {
    {HOOK(dpb_comm_ops, open)},    {HOOK(dpb_comm_ops, plan)},     {HOOK(dpb_comm_ops, bind)},
    {HOOK(dpb_comm_ops, load)},    {HOOK(dpb_comm_ops, begin)},    {HOOK(dpb_comm_ops, ready)},
    {HOOK(dpb_comm_ops, progress)}, {HOOK(dpb_comm_ops, end)},     {HOOK(dpb_comm_ops, publish)},
    {HOOK(dpb_comm_ops, close)},   {NULL, 0}};
static const struct hook codec_hooks[] = {
    {HOOK(dpb_codec_ops, bound)}, {HOOK(dpb_codec_ops, encode)}, {HOOK(dpb_codec_ops, decode)},
    {NULL, 0}};
/* clang-format on */

static const struct {
    const struct hook *hooks;
    size_t ops_size;
} kinds[DPB_PLUGIN_KINDS] = {
    [DPB_PLUGIN_MODEL] = {model_hooks, sizeof(struct dpb_model_ops)},
    [DPB_PLUGIN_DATA] = {data_hooks, sizeof(struct dpb_data_ops)},
    [DPB_PLUGIN_DEVICE] = {device_hooks, sizeof(struct dpb_device_ops)},
    [DPB_PLUGIN_COMM] = {comm_hooks, sizeof(struct dpb_comm_ops)},
    [DPB_PLUGIN_CODEC] = {codec_hooks, sizeof(struct dpb_codec_ops)},
};

DPB_PRINTF(2, 3)
static bool refuse(char reason[DPB_REASON_BYTES], const char *format, ...)
{
    DPB_PRINT_ARGUMENTS(reason, DPB_REASON_BYTES, format);
    return false;
}

static bool is_set(const void *ops, size_t offset)
{
    void (*hook)(void);
    memcpy(&hook, (const char *)ops + offset, sizeof hook);
    return hook != NULL;
}

bool dpb_plugin_name_valid(const char *name)
{
    return name && name[0] != '\0' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

static const char *kind_text(uint32_t kind)
{
    return kind < DPB_PLUGIN_KINDS ? dpb_plugin_kind_name[kind] : "unknown";
}

/* The reason against the frozen prefix, in this order: a later field is valid only if all fields
 * before it are. */
static bool check_prefix(const struct dpb_plugin *plugin, dpb_plugin_kind kind, char *reason)
{
    const char *rebuild = "rebuild the plugin with this dpbench's headers";
    if (plugin->magic != DPB_PLUGIN_MAGIC)
        return refuse(reason, "magic is 0x%llx, not 0x%llx: this is no dpbench plugin",
                      (unsigned long long)plugin->magic, (unsigned long long)DPB_PLUGIN_MAGIC);
    if (plugin->struct_size != sizeof *plugin)
        return refuse(reason, "struct_size is %u, here it is %zu: %s", plugin->struct_size,
                      sizeof *plugin, rebuild);
    if (plugin->abi != DPB_ABI)
        return refuse(reason, "abi is %u, here it is %u: %s", plugin->abi, (unsigned)DPB_ABI,
                      rebuild);
    if (plugin->kind != (uint32_t)kind)
        return refuse(reason,
                      "kind is %u (%s), by its file name it should be %u (%s): name it %s_NAME.so",
                      plugin->kind, kind_text(plugin->kind), (unsigned)kind, kind_text(kind),
                      kind_text(plugin->kind));
    if (plugin->ops_size != kinds[kind].ops_size)
        return refuse(reason, "ops_size is %u, here it is %zu: %s", plugin->ops_size,
                      kinds[kind].ops_size, rebuild);
    return true;
}

/* Without its rows the struct stays zeros: the codec would run without error feedback. */
static bool has_codec_options(const struct dpb_plugin *plugin)
{
    static const struct dpb_option rows[] = {DPB_CODEC_OPTION_ROWS};
    bool has = plugin->options && plugin->options_size >= sizeof(struct dpb_codec_options);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && has; i++)
        has = plugin->options[i].name && strcmp(plugin->options[i].name, rows[i].name) == 0 &&
              plugin->options[i].offset == rows[i].offset;
    return has;
}

/* Rows that would be parsed into other memory than the options struct, or by no rule. */
static bool check_options(const struct dpb_plugin *plugin, char *reason)
{
    if (plugin->kind == DPB_PLUGIN_CODEC && !has_codec_options(plugin))
        return refuse(reason,
                      "options of '%s' do not begin with struct dpb_codec_options, or their table "
                      "with DPB_CODEC_OPTION_ROWS",
                      plugin->name);
    for (const struct dpb_option *row = plugin->options; row && row->name; row++) {
        size_t bytes = dpb_option_bytes(row->type);
        if (bytes == 0)
            return refuse(reason, "option '%s' of '%s' has type %u, which is none", row->name,
                          plugin->name, (unsigned)row->type);
        if (bytes > plugin->options_size || row->offset > plugin->options_size - bytes)
            return refuse(
                reason, "option '%s' of '%s' lies at bytes %zu to %zu of options_size = %zu bytes",
                row->name, plugin->name, row->offset, row->offset + bytes, plugin->options_size);
        if (row->type == DPB_OPT_CHOICE && !row->choices)
            return refuse(reason, "option '%s' of '%s' has no choices (NULL)", row->name,
                          plugin->name);
    }
    return true;
}

static bool has_hooks(const struct dpb_plugin *plugin, const struct hook *hooks, const char *why,
                      char *reason)
{
    for (const struct hook *hook = hooks; hook->name; hook++)
        if (!is_set(plugin->ops, hook->offset))
            return refuse(reason, "hook %s of '%s' is missing (NULL), %s", hook->name, plugin->name,
                          why);
    return true;
}

/* A device with memory of its own, or that emulates, has the hooks that belong to that. */
static bool check_device(const struct dpb_plugin *plugin, dpb_plugin_kind kind, char *reason)
{
    static const struct hook of_queues[] = {{HOOK(dpb_device_ops, follow)},
                                            {HOOK(dpb_device_ops, drain)},
                                            {HOOK(dpb_device_ops, times)},
                                            {NULL, 0}},
                             of_emulation[] = {{HOOK(dpb_device_ops, emulation)},
                                               {HOOK(dpb_device_ops, late_ns)},
                                               {NULL, 0}};
    if (kind != DPB_PLUGIN_DEVICE)
        return true;
    if ((plugin->capabilities & DPB_DEVICE_EMULATED) &&
        !has_hooks(plugin, of_emulation, "and it has DPB_DEVICE_EMULATED", reason))
        return false;
    return !is_set(plugin->ops, offsetof(struct dpb_device_ops, queues)) ||
           has_hooks(plugin, of_queues, "it has queues", reason);
}

/* A bit that no header names is a promise that nobody keeps; so is a pair that cannot both hold. */
static bool check_capabilities(const struct dpb_plugin *plugin, dpb_plugin_kind kind, char *reason)
{
    static const uint64_t known[DPB_PLUGIN_KINDS] = {
        [DPB_PLUGIN_DEVICE] = DPB_DEVICE_FP32 | DPB_DEVICE_BF16 | DPB_DEVICE_FP64 |
                              DPB_DEVICE_TF32 | DPB_DEVICE_FP16 | DPB_DEVICE_POOL |
                              DPB_DEVICE_NODE_BY_NODE | DPB_DEVICE_EMULATED,
        [DPB_PLUGIN_COMM] = DPB_COMM_OVERLAP | DPB_COMM_SERVERS | DPB_COMM_ALONE |
                            DPB_COMM_MULTI_NODE | DPB_COMM_LAUNCHER | DPB_COMM_SERVED |
                            DPB_COMM_CODECS | DPB_COMM_ROUNDS | DPB_COMM_WHOLE |
                            DPB_COMM_WHOLE_SHARDS | DPB_COMM_OWN_DEVICE | DPB_COMM_SURVIVES |
                            DPB_COMM_THREADS};
    static const struct {
        uint64_t a, b;
        const char *names;
    } pairs[] = {{DPB_COMM_ALONE, DPB_COMM_SERVERS, "DPB_COMM_ALONE and DPB_COMM_SERVERS"},
                 {DPB_COMM_ALONE, DPB_COMM_LAUNCHER, "DPB_COMM_ALONE and DPB_COMM_LAUNCHER"}};
    const uint64_t unknown = plugin->capabilities & ~known[kind];
    if (unknown != 0)
        return refuse(reason, "capabilities of '%s' have the bits 0x%llx, which a %s does not have",
                      plugin->name, (unsigned long long)unknown, dpb_plugin_kind_name[kind]);
    for (size_t i = 0; kind == DPB_PLUGIN_COMM && i < sizeof pairs / sizeof pairs[0]; i++)
        if ((plugin->capabilities & pairs[i].a) && (plugin->capabilities & pairs[i].b))
            return refuse(reason, "capabilities of '%s' have %s, which exclude each other",
                          plugin->name, pairs[i].names);
    return true;
}

bool dpb_plugin_check_hooks(const struct dpb_plugin *plugin, const void *ops,
                            char reason[DPB_REASON_BYTES])
{
    const dpb_plugin_kind kind = (dpb_plugin_kind)plugin->kind;
    for (const struct hook *hook = kinds[kind].hooks; hook->name; hook++)
        if (!is_set(ops, hook->offset))
            return refuse(reason, "hook %s of '%s' is missing (NULL): every %s sets it", hook->name,
                          plugin->name, dpb_plugin_kind_name[kind]);
    if (kind == DPB_PLUGIN_COMM && (plugin->capabilities & DPB_COMM_SERVERS) != 0 &&
        !is_set(ops, offsetof(struct dpb_comm_ops, serve)))
        return refuse(
            reason, "hook serve of '%s' is missing (NULL), its capabilities have DPB_COMM_SERVERS",
            plugin->name);
    const struct dpb_codec_ops *codec = kind == DPB_PLUGIN_CODEC ? ops : NULL;
    if (codec && (!codec->finish != !codec->state || (codec->finish && !codec->bytes)))
        return refuse(reason,
                      "hooks state, bytes and finish of '%s': a codec of two rounds sets all of "
                      "them, another at most bytes",
                      plugin->name);
    return true;
}

static bool check_one(const struct dpb_plugin *plugin, dpb_plugin_kind kind, char *reason)
{
    if (!check_prefix(plugin, kind, reason))
        return false;
    if (!dpb_plugin_name_valid(plugin->name))
        return refuse(reason, "name is '%s', it should match [a-z0-9_]+",
                      plugin->name ? plugin->name : "(NULL)");
    if (!plugin->version || !plugin->summary)
        return refuse(reason, "%s of '%s' is NULL: set it",
                      !plugin->version ? "version" : "summary", plugin->name);
    if (!plugin->ops)
        return refuse(reason, "ops of '%s' is NULL: set it", plugin->name);
    return dpb_plugin_check_hooks(plugin, plugin->ops, reason) &&
           check_capabilities(plugin, kind, reason) && check_device(plugin, kind, reason) &&
           check_options(plugin, reason);
}

bool dpb_plugin_check(const struct dpb_plugin *first, dpb_plugin_kind kind,
                      char reason[DPB_REASON_BYTES])
{
    uint32_t n = 0;
    for (const struct dpb_plugin *plugin = first; plugin; plugin = plugin->next) {
        if (!check_one(plugin, kind, reason))
            return false;
        if (++n > DPB_PLUGIN_CHAIN)
            return refuse(reason,
                          "`next` leads through more than %d plugins: does it form a circle?",
                          DPB_PLUGIN_CHAIN);
    }
    return true;
}
