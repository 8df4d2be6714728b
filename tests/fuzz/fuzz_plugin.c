/*
 * fuzz_plugin.c - what a plugin's entry returns: a struct, its hooks, its options and those behind
 * `next`, made of the input. A plugin that passes the checks is then given a configuration.
 */
#include "base/config.h"
#include "base/options.h"
#include "plugin/plugins.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_PLUGINS = 3, MOST_ROWS = 4, HOOKS = 32, TEXTS = 16, TEXT_BYTES = 12 };

struct made {
    struct dpb_plugin plugin;
    struct dpb_option rows[MOST_ROWS + 1];
    void (*hooks[HOOKS])(void);
    char texts[TEXTS][TEXT_BYTES];
    int n_texts;
};

static const char *const choices[] = {"one", "two", NULL};

static void hook(void)
{
    abort(); /* checks call none */
}

/* NULL, or a short text. */
static const char *make_text(struct made *made, struct fuzz_input *input)
{
    uint8_t length = fuzz_byte(input);
    if (length == 0 || made->n_texts == TEXTS)
        return NULL;
    char *text = made->texts[made->n_texts++];
    for (int i = 0; i < length % TEXT_BYTES; i++)
        text[i] = (char)fuzz_byte(input);
    return text;
}

static void make_row(struct made *made, struct dpb_option *row, struct fuzz_input *input)
{
    uint32_t type = fuzz_byte(input);
    row->name = make_text(made, input);
    memcpy(&row->type, &type, sizeof row->type);
    row->def = make_text(made, input);
    row->unit = fuzz_byte(input) % 2 ? "s" : NULL;
    row->offset = (size_t)fuzz_word(input) << (fuzz_byte(input) % 33);
    row->choices = fuzz_byte(input) % 2 ? choices : NULL;
    row->min = fuzz_byte(input);
    row->max = fuzz_byte(input);
}

static void make_plugin(struct made *made, const struct dpb_plugin *next, struct fuzz_input *input)
{
    static const uint32_t ops_sizes[DPB_PLUGIN_KINDS] = {
        sizeof(struct dpb_model_ops), sizeof(struct dpb_data_ops), sizeof(struct dpb_device_ops),
        sizeof(struct dpb_comm_ops), sizeof(struct dpb_codec_ops)};
    struct dpb_plugin *plugin = &made->plugin;
    uint32_t kind = fuzz_byte(input), unset = fuzz_word(input), wrong = fuzz_byte(input);
    *plugin = (struct dpb_plugin){.magic = DPB_PLUGIN_MAGIC,
                                  .struct_size = sizeof *plugin,
                                  .abi = DPB_ABI,
                                  .kind = kind,
                                  .ops_size = kind < DPB_PLUGIN_KINDS ? ops_sizes[kind] : 8,
                                  .capabilities = fuzz_byte(input),
                                  .next = next};
    plugin->name = make_text(made, input);
    plugin->version = make_text(made, input);
    plugin->summary = make_text(made, input);
    for (int i = 0; i < HOOKS; i++)
        made->hooks[i] = unset >> i & 1 ? NULL : hook;
    plugin->ops = wrong & 1 ? NULL : made->hooks;
    if (wrong & 2)
        plugin->magic = fuzz_word(input);
    if (wrong & 4)
        plugin->struct_size = fuzz_word(input);
    if (wrong & 8)
        plugin->ops_size = fuzz_word(input);
    if (wrong & 16)
        plugin->next = plugin;
    plugin->options = wrong & 32 ? NULL : made->rows;
    plugin->options_size = wrong & 64 ? (size_t)fuzz_word(input) << 32 : fuzz_byte(input);
    for (int i = 0, n = fuzz_byte(input) % (MOST_ROWS + 1); i < n; i++)
        make_row(made, &made->rows[i], input);
}

/* What passed is parsed into a struct of the size that it says, and shown. */
static void use_plugin(const struct dpb_plugin *plugin, const struct dpb_config *config)
{
    if (plugin->options_size > 1 << 20)
        return;
    void *values = malloc(plugin->options_size);
    FILE *out = fopen("/dev/null", "we");
    FUZZ_CHECK(out != NULL && (values != NULL || plugin->options_size == 0));
    const struct dpb_option_table table = {"comm", plugin->name, plugin->options, values};
    if (dpb_options_parse_known(&table, config) == DPB_OK)
        fuzz_used();
    dpb_options_print("comm", plugin->options, out);
    dpb_first_error_clear();
    fclose(out);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct made *made = calloc(MOST_PLUGINS, sizeof *made);
    struct fuzz_input input = {data, size};
    char reason[DPB_REASON_BYTES] = "";
    fuzz_begin();
    FUZZ_CHECK(made != NULL);
    struct dpb_config *config = dpb_config_create();
    dpb_plugin_kind kind = (dpb_plugin_kind)(fuzz_byte(&input) % DPB_PLUGIN_KINDS);
    int n = 1 + fuzz_byte(&input) % MOST_PLUGINS;
    for (int i = n; i-- > 0;)
        make_plugin(&made[i], i + 1 < n ? &made[i + 1].plugin : NULL, &input);
    if (dpb_plugin_check(&made[0].plugin, kind, reason))
        for (const struct dpb_plugin *p = &made[0].plugin; p != NULL; p = p->next)
            use_plugin(p, config);
    else
        FUZZ_CHECK(reason[0] != '\0' && memchr(reason, '\0', sizeof reason) != NULL);
    dpb_config_destroy(config);
    free(made);
    return 0;
}
