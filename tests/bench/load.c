/* The load of the benchmarks, at about half the CPU of the one in Python, and without its half second of start: on a
 * small machine a load that is busy itself takes the time of the server, and waits where its clients would not.
 *
 *   load PORT KIND --clients N --seconds S --keys N [--warm-up S] [--operations N] [--new-connections] [--fresh-keys]
 *
 * One thread, one epoll, loopback only. Each client does one operation after the other, so there are as many under
 * way as there are clients. It prints `begin` when it is warm and one line of JSON at the end, and does the same
 * operations with the same requests as `holdfast.cli.bench.load`, so that it can stand in for it. Its own are `lines`,
 * a lock and its release in the three lines of dflockd's protocol, on a port that speaks it; `update`, one update under a
 * lease that each client keeps; `put` and `range` of a key, as etcd's gateway takes them.
 *
 * An operation is a list of steps, each one request:
 *
 *   start_operation --> next_request --send--> (answer) --> take_answer --> next_request ... no step left: end_operation
 *
 * Anything that was not expected ends the program with a message: a load that goes on after an error measures errors.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    CLIENTS_MAX = 1024,
    INPUT_BYTES = 64 << 10,   /* The largest answer is a page of keys, of some kilobytes. */
    OUTPUT_BYTES = 8 << 10,
    DOCUMENT_BYTES = 1024,    /* {"payload":"xxx..."} as in the load in Python. */
    MESSAGE_BYTES = 512,
    NAME_BYTES = 64,
    FIELD_BYTES = 128,
    STRIDE = 7919,            /* Keys not in order, so that what one operation read does not help the next. */
    PAGE_KEYS = 50,           /* Of `holdfast.cli.bench.query.document`: each group of shared_by_50 has so many. */
    PAGE_GROUPS = 4,
    ANSWER_S_MAX = 30,
    OPERATIONS_MAX = 20000000,
};

enum kind { LOCK, TRANSACTION, READ, ATTACHMENT, QUEUE, QUERY, UPDATE, PUT, RANGE, LINES, KINDS };
static const char *const KIND_NAMES[KINDS] = {"lock",  "transaction", "read", "attachment", "queue",
                                              "query", "update",      "put",  "range",      "lines"};

/* What an acquire or a dequeue told, to be named in what follows. */
struct claim {
    char key[NAME_BYTES];
    char lease_id[FIELD_BYTES];
    char txn_id[FIELD_BYTES];
    char message_id[FIELD_BYTES];
    char meta_etag[FIELD_BYTES];
    unsigned long long token;
};

struct client {
    int socket;
    int number;
    int step;
    bool is_message_asked;   /* The answer that comes brings a message. */
    struct claim *asked;     /* Whom the answer that comes tells its lease, if it tells one. */
    struct claim claims[2];
    char txn_id[21];
    char key[NAME_BYTES];
    long keys, key_at;       /* Its own share of the keys, and where in it. */
    uint64_t operations;     /* Begun so far, over all phases. */
    uint64_t began_ns;
    size_t input_bytes;
    char input[INPUT_BYTES + 1];
    size_t output_bytes;
    char output[OUTPUT_BYTES];
};

static struct {
    struct sockaddr_in address;
    enum kind kind;
    int clients;
    double seconds, warm_up_s;
    long keys;
    long operations_max;
    bool is_new_connection, is_fresh_key;
} job = {.clients = 16, .seconds = 1.5, .warm_up_s = 0.5, .keys = 16, .operations_max = OPERATIONS_MAX};

static struct client *clients;
static int open_clients;
static int poller;
static bool is_over;
static uint64_t requests;
static uint64_t *latencies_ns;
static size_t latencies, latencies_room;
static char document[DOCUMENT_BYTES], attachment[DOCUMENT_BYTES], message[MESSAGE_BYTES];
static char document_base64[DOCUMENT_BYTES * 4 / 3 + 8];
static uint64_t started_ns; /* Wall clock: what is new in this run has a name that no run before it used. */

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    va_end(values);
    _exit(1);
}

__attribute__((noreturn)) static void out_of_time(int signal_number)
{
    static const char told[] = "load: out of time: an answer did not come\n";
    (void)signal_number;
    (void)!write(2, told, sizeof told - 1);
    _exit(1);
}

static uint64_t clock_ns(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* ---- Requests ---- */

static void put_request(struct client *client, const char *target, const char *headers, const void *body, size_t bytes)
{
    int head = snprintf(client->output, OUTPUT_BYTES, "POST %s HTTP/1.1\r\nHost: plane\r\n%sContent-Length: %zu\r\n\r\n",
                        target, headers, bytes);
    if (head < 0 || (size_t)head + bytes > OUTPUT_BYTES)
        fail("a request is longer than %d bytes", OUTPUT_BYTES);
    memcpy(client->output + head, body, bytes);
    client->output_bytes = (size_t)head + bytes;
}

#define JSON_TYPE "Content-Type: application/json\r\n"

static void put_acquire(struct client *client, struct claim *claim, const char *suffix, const char *txn_id)
{
    char body[512], joined[64] = "";
    snprintf(claim->key, sizeof claim->key, "%.50s%s", client->key, suffix);
    if (txn_id != NULL)
        snprintf(joined, sizeof joined, ",\"txn_id\":\"%s\"", txn_id);
    int bytes = snprintf(body, sizeof body,
                         "{\"key\":\"%s\",\"owner\":\"bench\",\"ttl_seconds\":60,\"block_seconds\":-1%s}", claim->key, joined);
    put_request(client, "/v1/acquire", JSON_TYPE, body, (size_t)bytes);
    client->asked = claim;
}

/* A kilobyte under the lease: a document, or an attachment. */
static void put_content(struct client *client, const char *path, const struct claim *claim, const char *content)
{
    char target[256], headers[512];
    snprintf(target, sizeof target, path, claim->key);
    snprintf(headers, sizeof headers, JSON_TYPE "X-Lease-ID: %s\r\nX-Txn-ID: %s\r\nX-Fencing-Token: %llu\r\n",
             claim->lease_id, claim->txn_id, claim->token);
    put_request(client, target, headers, content, DOCUMENT_BYTES);
}

static void put_update(struct client *client, const struct claim *claim)
{
    put_content(client, "/v1/update?key=%s", claim, document);
}

static void put_release(struct client *client, const struct claim *claim)
{
    char body[512], headers[128];
    int bytes = snprintf(body, sizeof body, "{\"key\":\"%s\",\"lease_id\":\"%s\",\"txn_id\":\"%s\"}", claim->key,
                         claim->lease_id, claim->txn_id);
    snprintf(headers, sizeof headers, JSON_TYPE "X-Fencing-Token: %llu\r\n", claim->token);
    put_request(client, "/v1/release", headers, body, (size_t)bytes);
}

static void put_read(struct client *client)
{
    char target[256];
    snprintf(target, sizeof target, "/v1/get?key=%s&public=1", client->key);
    put_request(client, target, JSON_TYPE, "", 0);
}

static void encode_base64(char *text, const char *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t at = 0; at < bytes; at += 3) {
        size_t left = bytes - at;
        unsigned three = (unsigned)(uint8_t)data[at] << 16 | (left > 1 ? (unsigned)(uint8_t)data[at + 1] << 8 : 0u)
                         | (left > 2 ? (unsigned)(uint8_t)data[at + 2] : 0u);
        *text++ = digits[three >> 18];
        *text++ = digits[three >> 12 & 63];
        *text++ = left > 1 ? digits[three >> 6 & 63] : '=';
        *text++ = left > 2 ? digits[three & 63] : '=';
    }
    *text = '\0';
}

/* What curl sends: no content type that means anything. */
static void put_kv(struct client *client, const char *target, const char *members)
{
    char key[NAME_BYTES * 2], body[4096];
    encode_base64(key, client->key, strlen(client->key));
    int bytes = snprintf(body, sizeof body, "{\"key\":\"%s\"%s}", key, members);
    put_request(client, target, "", body, (size_t)bytes);
}

static void put_put(struct client *client)
{
    char members[2048];
    snprintf(members, sizeof members, ",\"value\":\"%s\"", document_base64);
    put_kv(client, "/v3/kv/put", members);
}

static void put_query(struct client *client)
{
    char body[256];
    int bytes = snprintf(body, sizeof body,
                         "{\"selector\":{\"eq\":{\"field\":\"/shared_by_%d\",\"value\":\"group-%d\"}},\"limit\":%d}", PAGE_KEYS,
                         (int)((client->operations + (uint64_t)client->number) % PAGE_GROUPS), PAGE_KEYS);
    put_request(client, "/v1/query", JSON_TYPE, body, (size_t)bytes);
}

/* As `operations.py` of the queue writes it, and as its clients do: the meta part, then the payload. */
static void put_enqueue(struct client *client)
{
    static const char boundary[] = "holdfast-bench-0123456789abcdef";
    char body[2048], headers[128];
    int head = snprintf(body, sizeof body,
                        "--%s\r\nContent-Disposition: form-data; name=\"meta\"\r\nContent-Type: application/json\r\n\r\n"
                        "{\"queue\": \"bench\"}\r\n"
                        "--%s\r\nContent-Disposition: form-data; name=\"payload\"\r\n"
                        "Content-Type: application/octet-stream\r\n\r\n%.*s\r\n--%s--\r\n",
                        boundary, boundary, MESSAGE_BYTES, message, boundary);
    snprintf(headers, sizeof headers, "Content-Type: multipart/related; boundary=%s\r\n", boundary);
    put_request(client, "/v1/queue/enqueue", headers, body, (size_t)head);
}

static void put_dequeue(struct client *client)
{
    static const char body[] = "{\"queue\": \"bench\", \"owner\": \"bench\", \"visibility_timeout_seconds\": 60, "
                               "\"wait_seconds\": 10}";
    put_request(client, "/v1/queue/dequeue", JSON_TYPE, body, sizeof body - 1);
    client->asked = &client->claims[0];
    client->is_message_asked = true;
}

static void put_ack(struct client *client)
{
    const struct claim *claim = &client->claims[0];
    char body[1024];
    int bytes = snprintf(body, sizeof body,
                         "{\"queue\": \"bench\", \"message_id\": \"%s\", \"lease_id\": \"%s\", \"txn_id\": \"%s\", "
                         "\"fencing_token\": %llu, \"meta_etag\": \"%s\"}",
                         claim->message_id, claim->lease_id, claim->txn_id, claim->token, claim->meta_etag);
    put_request(client, "/v1/queue/ack", JSON_TYPE, body, (size_t)bytes);
}

static void put_lines(struct client *client, const char *command, const char *argument)
{
    int bytes = snprintf(client->output, OUTPUT_BYTES, "%s\n%s\n%s\n", command, client->key, argument);
    client->output_bytes = (size_t)bytes;
}

/* ---- Operations ---- */

/* An xid: 4 bytes of time, 5 of this process, 3 that count, in base 32. The last character carries one bit. */
static void mint_txn_id(char *txn_id)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuv";
    static uint32_t count;
    uint8_t bytes[13] = {0};
    uint32_t second = (uint32_t)(started_ns / 1000000000u), process = (uint32_t)getpid();
    count++;
    for (int at = 0; at < 4; at++)
        bytes[at] = (uint8_t)(second >> (24 - 8 * at));
    bytes[4] = 0xbe;
    for (int at = 0; at < 4; at++)
        bytes[5 + at] = (uint8_t)(process >> (24 - 8 * at));
    for (int at = 0; at < 3; at++)
        bytes[9 + at] = (uint8_t)(count >> (16 - 8 * at));
    for (int digit = 0; digit < 20; digit++) {
        int bit = digit * 5;
        unsigned pair = (unsigned)bytes[bit / 8] << 8 | (bit / 8 < 12 ? bytes[bit / 8 + 1] : 0u);
        txn_id[digit] = digits[pair >> (11 - bit % 8) & 31];
    }
    txn_id[20] = '\0';
}

static void choose_key(struct client *client)
{
    if (job.kind == UPDATE) {
        snprintf(client->key, sizeof client->key, "bench-%llx-%d", (unsigned long long)(started_ns / 1000000u), client->number);
        return;
    }
    if (job.is_fresh_key) {
        snprintf(client->key, sizeof client->key, "bench-%llx-%d-%llu", (unsigned long long)(started_ns / 1000000u),
                 client->number, (unsigned long long)client->operations);
        return;
    }
    snprintf(client->key, sizeof client->key, "bench-%07ld", client->number + client->key_at * job.clients);
    client->key_at = (client->key_at + (client->keys % STRIDE ? STRIDE : 1)) % client->keys;
}

/* Writes the request of the client's step; false when the operation has no further one. */
static bool next_request(struct client *client)
{
    struct claim *first = &client->claims[0], *second = &client->claims[1];
    int step = client->step++;
    client->asked = NULL;
    client->is_message_asked = false;
    switch (job.kind) {
    case LOCK:
        switch (step) {
        case 0: put_acquire(client, first, "", NULL); return true;
        case 1: put_update(client, first); return true;
        case 2: put_release(client, first); return true;
        }
        return false;
    case TRANSACTION:
        switch (step) {
        case 0: mint_txn_id(client->txn_id); put_acquire(client, first, "-a", client->txn_id); return true;
        case 1: put_acquire(client, second, "-b", client->txn_id); return true;
        case 2: put_update(client, first); return true;
        case 3: put_update(client, second); return true;
        case 4: put_release(client, first); return true; /* It commits both keys. */
        }
        return false;
    case ATTACHMENT:
        switch (step) {
        case 0: put_acquire(client, first, "", NULL); return true;
        case 1: put_content(client, "/v1/attachments?key=%s&name=bench", first, attachment); return true;
        case 2: put_release(client, first); return true;
        }
        return false;
    case QUEUE:
        switch (step) {
        case 0: put_enqueue(client); return true;
        case 1: put_dequeue(client); return true; /* All clients share the queue: whichever message is next. */
        case 2: put_ack(client); return true;
        }
        return false;
    case READ:
        if (step == 0)
            put_read(client);
        return step == 0;
    case UPDATE: /* The first operation of a client begins with its lease, which then lasts longer than the run. */
        if (first->token == 0)
            put_acquire(client, first, "", NULL);
        else if (step == (client->operations == 1))
            put_update(client, first);
        else
            return false;
        return true;
    case PUT:
        if (step == 0)
            put_put(client);
        return step == 0;
    case RANGE:
        if (step == 0)
            put_kv(client, "/v3/kv/range", "");
        return step == 0;
    case LINES:
        switch (step) {
        case 0: put_lines(client, "l", "30 10"); return true;
        case 1: put_lines(client, "r", first->lease_id); return true;
        }
        return false;
    default:
        if (step == 0)
            put_query(client);
        return step == 0;
    }
}

/* ---- Answers ---- */

static const char *find_member(const struct client *client, const char *body, const char *name)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *found = strstr(body, quoted);
    if (found == NULL)
        fail("no %s in the answer to step %d: %.600s", name, client->step, body);
    found += strlen(quoted);
    return *found == ' ' ? found + 1 : found;
}

static void read_text(const struct client *client, const char *body, const char *name, char *text)
{
    const char *from = find_member(client, body, name);
    size_t bytes = *from == '"' ? strcspn(from + 1, "\"\\") : 0;
    if (bytes == 0 || bytes >= FIELD_BYTES || from[bytes + 1] != '"')
        fail("%s is not a short text: %.600s", name, body);
    memcpy(text, from + 1, bytes);
    text[bytes] = '\0';
}

static void check_page(const char *body)
{
    int keys = 0;
    const char *at = strstr(body, "\"keys\":[");
    const char *end = at == NULL ? NULL : strchr(at, ']');
    if (end == NULL)
        fail("no keys in the answer: %.600s", body);
    for (at += strlen("\"keys\":["); at < end; at++)
        keys += *at == '"';
    if (keys != 2 * PAGE_KEYS)
        fail("a page has %d keys instead of %d: %.600s", keys / 2, PAGE_KEYS, body);
}

static void take_answer(struct client *client, const char *body, size_t bytes)
{
    if (client->asked != NULL) {
        struct claim *claim = client->asked;
        read_text(client, body, "lease_id", claim->lease_id);
        read_text(client, body, "txn_id", claim->txn_id);
        claim->token = strtoull(find_member(client, body, "fencing_token"), NULL, 10);
        if (claim->token == 0)
            fail("a fencing token is not a number: %.600s", body);
        if (client->is_message_asked) {
            read_text(client, body, "message_id", claim->message_id);
            read_text(client, body, "meta_etag", claim->meta_etag);
        }
    } else if (job.kind == READ && bytes < DOCUMENT_BYTES) {
        fail("a document has %zu bytes: %.600s", bytes, body);
    } else if (job.kind == RANGE && bytes < DOCUMENT_BYTES) {
        fail("a value is not there, put it first: %.600s", body);
    } else if (job.kind == QUERY) {
        check_page(body);
    }
}

/* `ok TOKEN 10` to the lock, `ok` to its release; false while the line has no end. */
static bool take_line(struct client *client)
{
    char rest;
    client->input[client->input_bytes] = '\0';
    if (client->input_bytes == 0 || client->input[client->input_bytes - 1] != '\n')
        return false;
    bool is_expected = client->step == 1
        ? sscanf(client->input, "ok %64[0-9a-f] 10\n%c", client->claims[0].lease_id, &rest) == 1
        : strcmp(client->input, "ok\n") == 0;
    if (!is_expected)
        fail("unexpected answer to step %d: %.600s", client->step, client->input);
    return true;
}

/* Where the body begins, once the answer is here as a whole; else 0. */
static size_t whole_answer(struct client *client, size_t *body_bytes)
{
    char *input = client->input;
    input[client->input_bytes] = '\0';
    char *head_end = strstr(input, "\r\n\r\n");
    if (head_end == NULL)
        return 0;
    *head_end = '\0';
    if (strncasecmp(input, "HTTP/1.1 2", 10) != 0)
        fail("unexpected answer to step %d of %s: %.300s: %.300s", client->step, KIND_NAMES[job.kind], input, head_end + 4);
    char *length = strcasestr(input, "\r\ncontent-length:");
    if (length == NULL)
        fail("an answer of unknown length: %.600s", input);
    *body_bytes = strtoull(length + strlen("\r\ncontent-length:"), NULL, 10);
    *head_end = '\r';
    size_t body_at = (size_t)(head_end + 4 - input);
    if (body_at + *body_bytes > INPUT_BYTES)
        fail("an answer of %zu bytes is too long", *body_bytes);
    if (client->input_bytes < body_at + *body_bytes)
        return 0;
    if (client->input_bytes > body_at + *body_bytes)
        fail("more than one answer: %.600s", input + body_at + *body_bytes);
    return body_at;
}

/* ---- Connections ---- */

static void send_request(struct client *client)
{
    ssize_t sent = send(client->socket, client->output, client->output_bytes, MSG_NOSIGNAL);
    /* A request is far smaller than the buffer of a socket in which nothing is under way. */
    if (sent != (ssize_t)client->output_bytes)
        fail("a request was not sent: %s", sent < 0 ? strerror(errno) : "only in part");
}

static void connect_client(struct client *client)
{
    const int on = 1;
    const struct timeval patience = {.tv_sec = ANSWER_S_MAX};
    client->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->socket < 0)
        fail("no socket: %s", strerror(errno));
    setsockopt(client->socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    /* On loopback the kernel answers by itself, so this does not wait for the server. */
    if (connect(client->socket, (struct sockaddr *)&job.address, sizeof job.address) != 0)
        fail("no connection: %s", strerror(errno));
    setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(client->socket, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, client->socket, &event) != 0)
        fail("epoll: %s", strerror(errno));
}

static void start_operation(struct client *client)
{
    client->began_ns = now_ns();
    if (client->socket < 0)
        connect_client(client); /* Its time is part of the operation. */
    client->step = 0;
    choose_key(client);
    client->operations++;
    next_request(client);
    send_request(client);
}

static void close_client(struct client *client)
{
    close(client->socket);
    client->socket = -1;
}

static void end_operation(struct client *client)
{
    if (latencies == latencies_room) {
        latencies_room = latencies_room ? 2 * latencies_room : 1 << 16;
        latencies_ns = realloc(latencies_ns, latencies_room * sizeof *latencies_ns);
        if (latencies_ns == NULL)
            fail("no memory for %zu operations", latencies_room);
    }
    latencies_ns[latencies++] = now_ns() - client->began_ns;
    if (is_over || job.is_new_connection)
        close_client(client);
    if (is_over)
        open_clients--;
    else
        start_operation(client);
}

static void receive(struct client *client)
{
    size_t body_bytes, body_at;
    ssize_t received = recv(client->socket, client->input + client->input_bytes, INPUT_BYTES - client->input_bytes, 0);
    if (received < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (received <= 0)
        fail("the server closed a connection: %s", received < 0 ? strerror(errno) : "no answer to its request");
    client->input_bytes += (size_t)received;
    if (job.kind == LINES) {
        if (!take_line(client))
            return;
    } else {
        body_at = whole_answer(client, &body_bytes);
        if (body_at == 0)
            return;
        take_answer(client, client->input + body_at, body_bytes);
    }
    client->input_bytes = 0;
    requests++;
    if (next_request(client))
        send_request(client);
    else
        end_operation(client);
}

/* Until that time, until so many operations are done, or until every client is at its end. */
static void run_until(uint64_t end_ns)
{
    struct epoll_event events[256];
    uint64_t now;
    while (open_clients > 0 && (is_over || latencies < (size_t)job.operations_max) && (now = now_ns()) < end_ns) {
        int count = epoll_wait(poller, events, 256, (int)((end_ns - now) / 1000000u) + 1);
        if (count < 0 && errno != EINTR)
            fail("epoll: %s", strerror(errno));
        for (int at = 0; at < count; at++)
            receive(events[at].data.ptr);
    }
}

/* ---- The run ---- */

static int by_size(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

static double percentile_ms(double share)
{
    size_t at = (size_t)((double)latencies * share);
    return latencies == 0 ? 0 : (double)latencies_ns[at < latencies ? at : latencies - 1] / 1e6;
}

static uint64_t after_s(double seconds) { return now_ns() + (uint64_t)(seconds * 1e9); }

static void begin_clients(void)
{
    clients = calloc((size_t)job.clients, sizeof *clients);
    if (clients == NULL)
        fail("no memory for %d clients", job.clients);
    for (int number = 0; number < job.clients; number++) {
        struct client *client = &clients[number];
        client->socket = -1;
        client->number = number;
        client->keys = job.keys > number ? (job.keys - number + job.clients - 1) / job.clients : 1;
        start_operation(client);
        open_clients++;
    }
}

static void run(void)
{
    char result[256];
    begin_clients();
    run_until(after_s(job.warm_up_s));
    puts("begin");
    fflush(stdout);
    requests = latencies = 0;
    uint64_t began_ns = now_ns();
    run_until(after_s(job.seconds));
    double seconds = (double)(now_ns() - began_ns) / 1e9;
    qsort(latencies_ns, latencies, sizeof *latencies_ns, by_size);
    snprintf(result, sizeof result,
             "{\"operations\": %zu, \"requests\": %llu, \"seconds\": %.6f, \"p50_ms\": %.4f, \"p95_ms\": %.4f, \"p99_ms\": %.4f}",
             latencies, (unsigned long long)requests, seconds, percentile_ms(0.50), percentile_ms(0.95), percentile_ms(0.99));
    is_over = true; /* What was begun is ended, so that no lease and no message is left behind. */
    run_until(after_s(ANSWER_S_MAX));
    if (open_clients > 0)
        fail("%d clients had no answer within %d s", open_clients, ANSWER_S_MAX);
    puts(result);
}

static double number_of(const char *name, const char *text, double low, double high)
{
    char *end = NULL;
    double number = text == NULL ? 0 : strtod(text, &end);
    if (text == NULL || end == text || *end != '\0' || number < low || number > high)
        fail("%s: a number of %g to %g is needed, not %s", name, low, high, text == NULL ? "nothing" : text);
    return number;
}

static void read_job(char **words)
{
    job.address.sin_family = AF_INET;
    job.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    job.address.sin_port = htons((uint16_t)number_of("PORT", words[0], 1, 65535));
    if (words[0] == NULL || words[1] == NULL)
        fail("usage: load PORT KIND [--option ...]");
    for (job.kind = 0; job.kind < KINDS && strcmp(KIND_NAMES[job.kind], words[1]) != 0;)
        job.kind++;
    if (job.kind == KINDS)
        fail("no such kind: %s", words[1]);
    for (words += 2; *words != NULL; words++) {
        const char *name = *words;
        if (strcmp(name, "--new-connections") == 0)
            job.is_new_connection = true;
        else if (strcmp(name, "--fresh-keys") == 0)
            job.is_fresh_key = true;
        else if (strcmp(name, "--clients") == 0)
            job.clients = (int)number_of(name, *++words, 1, CLIENTS_MAX);
        else if (strcmp(name, "--seconds") == 0)
            job.seconds = number_of(name, *++words, 0.001, 3600);
        else if (strcmp(name, "--warm-up") == 0)
            job.warm_up_s = number_of(name, *++words, 0, 60);
        else if (strcmp(name, "--keys") == 0)
            job.keys = (long)number_of(name, *++words, 1, 10000000);
        else if (strcmp(name, "--operations") == 0)
            job.operations_max = (long)number_of(name, *++words, 1, OPERATIONS_MAX);
        else
            fail("no such option: %s", name);
    }
}

static void make_contents(void)
{
    static const char head[] = "{\"payload\":\"";
    memset(document, 'x', sizeof document);
    memcpy(document, head, sizeof head - 1);
    memcpy(document + sizeof document - 2, "\"}", 2);
    encode_base64(document_base64, document, sizeof document);
    memset(message, 'x', sizeof message);
    for (size_t at = 0; at < sizeof attachment; at++)
        attachment[at] = (char)at;
}

int main(int count, char **words)
{
    (void)count;
    read_job(words + 1);
    make_contents();
    started_ns = clock_ns(CLOCK_REALTIME);
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        fail("epoll: %s", strerror(errno));
    signal(SIGALRM, out_of_time);
    alarm((unsigned)(job.warm_up_s + job.seconds) + 2 * ANSWER_S_MAX);
    run();
    return 0;
}
