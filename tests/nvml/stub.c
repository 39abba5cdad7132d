/* A stand-in for libnvidia-ml.so.1: it answers what the file $FARSIDE_NVML_STUB says at the moment of the call.
 *
 * Lines are `CARD NAME VALUE...`, where CARD is an index or `-` for the library itself. `CARD fail.FUNCTION CODE` makes
 * one function fail on a card, `CARD fail CODE` every one that reads something, and while there is `CARD hang 1` none of
 * these returns. What the file does not name is not supported. With -DOLD the functions are absent that a driver of 2019
 * did not have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { int index; } Card;
typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 gpu, memory; } Utilisation;
typedef struct { Card *card; u64 type, data; u32 gpu_instance, compute_instance; } Event;
typedef struct { u32 max, high, partial, low, none; } Histogram;
typedef struct { u32 field, scope; long long stamp, latency; int type, result; u64 value; } Field;

enum { OK, NOT_INITIALISED, BAD_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, TOO_SMALL = 7, NO_DRIVER = 9, TIMEOUT = 10 };
enum { MAX_CARDS = 64, LINE = 512, PAUSE_US = 2000, U32_TYPE = 1, CRITICAL_XID = 8 };

static Card cards[MAX_CARDS];
static int running;
static int events_seen;

/* The rest of the line number `skip` (from 0) that begins with `card name `; 0 when there is none. */
static int find(int card, const char *name, int skip, char *rest) {
    const char *path = getenv("FARSIDE_NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[LINE], want[LINE];
    int found = 0;
    if (!file) return 0;
    if (card < 0) snprintf(want, LINE, "- %s ", name);
    else snprintf(want, LINE, "%d %s ", card, name);
    while (!found && fgets(line, LINE, file))
        if (!strncmp(line, want, strlen(want)) && skip-- == 0) found = 1;
    fclose(file);
    if (!found) return 0;
    line[strcspn(line, "\n")] = 0;
    strcpy(rest, line + strlen(want));
    return 1;
}

static int number(int card, const char *name, u64 *value) {
    char rest[LINE];
    if (!find(card, name, 0, rest)) return NOT_SUPPORTED;
    *value = strtoull(rest, NULL, 0);
    return OK;
}

static int number32(int card, const char *name, u32 *value) {
    u64 wide = 0;
    int result = number(card, name, &wide);
    if (result == OK) *value = (u32)wide;
    return result;
}

/* Whether `function` may answer at all. */
static int gate(int card, const char *function) {
    char name[LINE];
    u64 code;
    if (!running) return NOT_INITIALISED;
    while (number(card, "hang", &code) == OK) usleep(PAUSE_US);
    snprintf(name, LINE, "fail.%s", function);
    if (number(card, name, &code) == OK || number(card, "fail", &code) == OK) return (int)code;
    return OK;
}

static int text(int card, const char *name, char *out, u32 length) {
    char rest[LINE];
    if (!find(card, name, 0, rest)) return NOT_SUPPORTED;
    if (strlen(rest) >= length) return TOO_SMALL;
    strcpy(out, rest);
    return OK;
}

#define ALLOWED(card) do { int result_ = gate(card, __func__); if (result_ != OK) return result_; } while (0)
#define READS(FUNCTION, TYPE, NAME, READ) \
    int FUNCTION(Card *card, TYPE *value) { ALLOWED(card->index); return READ(card->index, NAME, value); }

const char *nvmlErrorString(int code) { (void)code; return "as the stub was told"; }

int nvmlInitWithFlags(u32 flags) {
    u64 code = NO_DRIVER;
    (void)flags;
    if (number(-1, "fail.nvmlInitWithFlags", &code) == OK) return (int)code;
    running = 1;
    return OK;
}

int nvmlShutdown(void) { running = 0; return OK; }

int nvmlDeviceGetCount_v2(u32 *count) { ALLOWED(-1); return number32(-1, "cards", count); }

int nvmlDeviceGetHandleByIndex_v2(u32 index, Card **card) {
    u32 count = 0;
    char name[LINE];
    u64 code;
    if (!running) return NOT_INITIALISED;
    number32(-1, "cards", &count);
    if (index >= count || index >= MAX_CARDS) return BAD_ARGUMENT;
    snprintf(name, LINE, "fail.%s", __func__);
    if (number((int)index, name, &code) == OK) return (int)code;
    cards[index].index = (int)index;
    *card = &cards[index];
    return OK;
}

int nvmlDeviceGetIndex(Card *card, u32 *index) { *index = (u32)card->index; return OK; }
int nvmlDeviceGetName(Card *card, char *out, u32 n) { ALLOWED(card->index); return text(card->index, "name", out, n); }
int nvmlDeviceGetUUID(Card *card, char *out, u32 n) { ALLOWED(card->index); return text(card->index, "uuid", out, n); }

int nvmlDeviceGetMemoryInfo(Card *card, Memory *memory) {
    ALLOWED(card->index);
    memory->used = 0;
    number(card->index, "memory.used", &memory->used);
    int result = number(card->index, "memory.total", &memory->total);
    memory->free = memory->total - memory->used;
    return result;
}

int nvmlDeviceGetUtilizationRates(Card *card, Utilisation *rates) {
    ALLOWED(card->index);
    number32(card->index, "utilisation.memory", &rates->memory);
    return number32(card->index, "utilisation", &rates->gpu);
}

int nvmlDeviceGetTemperature(Card *card, int sensor, u32 *value) {
    ALLOWED(card->index);
    return sensor == 0 ? number32(card->index, "temperature", value) : NOT_SUPPORTED;
}

READS(nvmlDeviceGetPowerUsage, u32, "power", number32)
READS(nvmlDeviceGetEnforcedPowerLimit, u32, "power.limit", number32)

int nvmlDeviceGetTotalEccErrors(Card *card, int kind, int counter, u64 *value) {
    static const char *names[2][2] = {{"ecc.corrected", "ecc.corrected.total"}, {"ecc.uncorrected", "ecc.uncorrected.total"}};
    ALLOWED(card->index);
    return number(card->index, names[kind & 1][counter & 1], value);
}

int nvmlDeviceGetRetiredPages_v2(Card *card, int cause, u32 *count, u64 *pages, u64 *times) {
    u32 room = *count;
    ALLOWED(card->index);
    int result = number32(card->index, cause ? "retired.double" : "retired.single", count);
    if (result != OK) return result;
    if (*count == 0) return OK;
    if (room < *count) return TOO_SMALL;
    for (u32 place = 0; place < *count; place++) pages[place] = 4096 * place, times[place] = place;
    return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(Card *card, u32 *value) {
    ALLOWED(card->index);
    return number32(card->index, "retired.pending", value);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Card *card, u64 *value) {
    ALLOWED(card->index);
    return number(card->index, "clocks", value);
}

int nvmlEventSetCreate(int **set) { *set = &events_seen; return gate(-1, __func__); }
int nvmlEventSetFree(int *set) { (void)set; return OK; }

int nvmlDeviceGetSupportedEventTypes(Card *card, u64 *types) {
    ALLOWED(card->index);
    return number(card->index, "events", types);
}

int nvmlDeviceRegisterEvents(Card *card, u64 types, int *set) {
    u64 able = 0;
    (void)set;
    ALLOWED(card->index);
    number(card->index, "events", &able);
    return types & ~able ? NOT_SUPPORTED : OK;
}

/* `- xid CARD NUMBER`, one line for each. */
int nvmlEventSetWait_v2(int *set, Event *event, u32 timeout_ms) {
    char rest[LINE];
    for (u32 waited = 0; waited <= timeout_ms * 1000; waited += PAUSE_US) {
        ALLOWED(-1);
        if (find(-1, "xid", *set, rest)) {
            int card = 0;
            u64 data = 0;
            (*set)++;
            sscanf(rest, "%d %llu", &card, &data);
            *event = (Event){&cards[card], CRITICAL_XID, data, ~0u, ~0u};
            return OK;
        }
        usleep(PAUSE_US);
    }
    return TIMEOUT;
}

#ifndef OLD
READS(nvmlDeviceGetCurrentClocksEventReasons, u64, "clocks", number)
READS(nvmlDeviceGetTotalEnergyConsumption, u64, "energy", number)

int nvmlDeviceGetRemappedRows(Card *card, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    ALLOWED(card->index);
    number32(card->index, "remapped.corrected", corrected);
    number32(card->index, "remapped.pending", pending);
    number32(card->index, "remapped.failed", failed);
    return number32(card->index, "remapped.uncorrected", uncorrected);
}

int nvmlDeviceGetRowRemapperHistogram(Card *card, Histogram *banks) {
    char rest[LINE];
    ALLOWED(card->index);
    if (!find(card->index, "banks", 0, rest)) return NOT_SUPPORTED;
    sscanf(rest, "%u %u %u %u %u", &banks->max, &banks->high, &banks->partial, &banks->low, &banks->none);
    return OK;
}

int nvmlDeviceGetMigMode(Card *card, u32 *now, u32 *pending) {
    ALLOWED(card->index);
    int result = number32(card->index, "mig", now);
    *pending = *now;
    return result;
}

int nvmlDeviceGetFieldValues(Card *card, int count, Field *fields) {
    char name[LINE];
    ALLOWED(card->index);
    for (int place = 0; place < count; place++) {
        snprintf(name, LINE, "field.%u", fields[place].field);
        fields[place].type = U32_TYPE;
        fields[place].value = 0;
        fields[place].result = number(card->index, name, &fields[place].value);
    }
    return OK;
}
#endif
