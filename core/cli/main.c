/* main.c - the program dpbench: it runs jobs, and becomes the program of any other command. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    static const struct dpb_program_command commands[] = {
        {"run", dpb_command_run},         {"check", dpb_command_check},
        {"comm", dpb_command_comm},       {"data", dpb_command_data},
        {"plugins", dpb_command_plugins}, {"help", dpb_command_help},
        {"list", dpb_command_list},       {0},
    };
    return dpb_program_main(&(struct dpb_program){.commands = commands}, argc, argv);
}
