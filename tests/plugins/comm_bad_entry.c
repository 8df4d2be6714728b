/* comm_bad_entry.c - a shared object that is no plugin. */
int dpb_plugin_entrance(void);

__attribute__((visibility("default"))) int dpb_plugin_entrance(void)
{
    return 0;
}
