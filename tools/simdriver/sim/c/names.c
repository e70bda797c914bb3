#include <ctype.h>

#include "sim.h"

/* As much of the names that C++ compilers make as kernels commonly have: _Z5scaleIfLi3EEvPT_ is scale<float,3>. */
struct out { char *to; size_t size, n; };

static void put(struct out *o, const char *text, size_t n)
{
	if (o->n + n + 1 > o->size)
		n = o->size - o->n - 1;
	memcpy(o->to + o->n, text, n);
	o->to[o->n += n] = 0;
}

/* source reads a name of which the length stands before it. */
static const char *source(const char *at, struct out *o)
{
	char *from;
	unsigned long n = strtoul(at, &from, 10);

	if (!isdigit((unsigned char)*at) || n > strlen(from))
		return 0;
	put(o, from, n);
	return from + n;
}

static const char *arguments(const char *at, struct out *o);

/* nested reads names with others in them, after N and up to E, or to the first arguments if it is to be without. */
static const char *nested(const char *at, struct out *o, bool with)
{
	for (bool first = true; at && *at != 'E'; first = false) {
		if (*at == 'I' && !first && !with)
			return at;
		if (*at == 'I' && !first) {
			at = arguments(at + 1, o);
			continue;
		}
		if (!first)
			put(o, "::", 2);
		at = source(at, o);
	}
	return at ? at + 1 : 0;
}

static const char *type(const char *at, struct out *o)
{
	static const char *const names[128] = {
		['b'] = "bool", ['c'] = "char", ['a'] = "signed char", ['h'] = "unsigned char", ['s'] = "short", ['t'] = "unsigned short",
		['i'] = "int", ['j'] = "unsigned int", ['l'] = "long", ['m'] = "unsigned long", ['x'] = "long long",
		['y'] = "unsigned long long", ['f'] = "float", ['d'] = "double", ['v'] = "void",
	};
	const char *name = names[*at & 127];

	if (*at == 'P') {
		at = type(at + 1, o);
		put(o, "*", 1);
		return at;
	}
	if (*at == 'N')
		return nested(at + 1, o, true);
	if (name) {
		put(o, name, strlen(name));
		return at + 1;
	}
	at = source(at, o);
	return at && *at == 'I' ? arguments(at + 1, o) : at;
}

/* value reads a number, after L. */
static const char *value(const char *at, struct out *o)
{
	size_t n;

	if (*at == 'b') {
		put(o, at[1] == '1' ? "true" : "false", at[1] == '1' ? 4 : 5);
		return at[1] && at[2] == 'E' ? at + 3 : 0;
	}
	if (!*at || !strchr("ijlmxysthac", *at))
		return 0;
	if (*++at == 'n') {
		put(o, "-", 1);
		at++;
	}
	n = strspn(at, "0123456789");
	put(o, at, n);
	return at[n] == 'E' ? at + n + 1 : 0;
}

/* arguments reads those of a template, after I. */
static const char *arguments(const char *at, struct out *o)
{
	put(o, "<", 1);
	for (bool first = true; at && *at != 'E'; first = false) {
		if (!first)
			put(o, ",", 1);
		at = *at == 'L' ? value(at + 1, o) : type(at, o);
	}
	put(o, ">", 1);
	return at ? at + 1 : 0;
}

bool name_plain(const char *name, bool with, char *to, size_t size)
{
	struct out o = {to, size, 0};
	const char *at = name + 2;

	*to = 0;
	if (strncmp(name, "_Z", 2))
		return false;
	if (*at == 'N')
		return nested(at + 1, &o, with);
	if (!(at = source(at, &o)))
		return false;
	return !with || *at != 'I' || arguments(at + 1, &o);
}
