/* A plug-in whose table has only a name, and which returns another table in its place.  CHOOSES makes that table a bad
 * one:
 *   CHOOSES=none    there is none
 *   CHOOSES=silent  there is none, and no reason is given
 *   CHOOSES=abi     it has another version of the ABI
 *   CHOOSES=short   it is too short
 *   CHOOSES=name    it has another name
 */
#include <string.h>

#include "broken.h"

TUTTI_BACKEND_EXPORT int chooses_asked;

static const tutti_backend *choose(const tutti_host *host)
{
    static tutti_backend table = {
        TUTTI_BACKEND_HEADER, .name = "chooses",          .version = "chosen",
        .group_bytes = 64,    .devices = 1u << TUTTI_CPU, BROKEN_ENTRIES,
    };
    const char *what = host->env("CHOOSES");
    chooses_asked++;
    table.abi = TUTTI_BACKEND_ABI;
    table.size = sizeof table;
    table.name = "chooses";
    if (what != NULL && strcmp(what, "abi") == 0) table.abi += 6;
    if (what != NULL && strcmp(what, "short") == 0) table.size = 48;
    if (what != NULL && strcmp(what, "name") == 0) table.name = "somebody_else";
    if (what != NULL && strcmp(what, "silent") == 0) return NULL;
    if (what == NULL || strcmp(what, "none") != 0) return &table;
    host->error(TUTTI_ERR_BACKEND, "nothing that fits");
    return NULL;
}

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {TUTTI_BACKEND_HEADER, .name = "chooses",
                                                             .instead = choose};
