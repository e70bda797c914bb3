#include "nvrtc.h"

#include "../c/elf64.h"

/* Sizes of a kernel's parameters, if all of them are known. */
static bool sizes(const struct kernel *k, size_t *to)
{
	for (int n = 0; n < k->nparameters; n++)
		if (!(to[n] = type_size(k, k->parameters[n])))
			return false;
	return true;
}

/* whole tells whether there is code of a kernel, and not of a template only. */
static bool whole(const struct kernel *k) { return !k->template || k->narguments; }

/* placed tells whether an image has a variable. */
static bool placed(const struct source *s, const struct variable *v) { return !v->hidden && !(v->outside && s->relocatable); }

static void variable_ptx(FILE *to, const struct source *s, const struct variable *v)
{
	char *name = type_symbol(v);

	fprintf(to, "\n%s%s %s.align 8 .b8 %s", s->relocatable ? ".visible " : "", v->constant ? ".const" : ".global",
		v->managed ? ".attribute(.managed) " : "", name);
	if (v->size)
		fprintf(to, "[%zu]", v->size);
	else
		fputs("[...]", to);
	for (size_t n = 0; v->bytes && n < v->size; n++)
		fprintf(to, "%s%d", n ? ", " : " = {", (unsigned char)v->bytes[n]);
	fputs(v->bytes && v->size ? "};\n" : ";\n", to);
	free(name);
}

char *image_ptx(const struct source *s, int arch)
{
	size_t known[MOST];
	FILE *to = text_open();

	fprintf(to, ".version %d.%d\n.target sm_%d\n.address_size 64\n", SIM_PTX / 10, SIM_PTX % 10, arch);
	for (int i = 0; i < s->n; i++) {
		const struct kernel *k = &s->kernels[i];
		char *name = type_lowered(k);

		if (whole(k)) {
			fprintf(to, "\n.visible .entry %s(", name);
			if (!sizes(k, known))
				fputs("...", to);
			else
				for (int n = 0; n < k->nparameters; n++)
					fprintf(to, "%s\n\t.param .align %zu .b8 %s_param_%d[%zu]", n ? "," : "", type_align(known[n]), name, n, known[n]);
			fputs(")\n{\n\tret;\n}\n", to);
		}
		free(name);
	}
	for (int i = 0; i < s->nvariables; i++)
		if (placed(s, &s->variables[i]))
			variable_ptx(to, s, &s->variables[i]);
	return text_close(to);
}

/* A part of the image that grows. */
struct part { char *bytes; size_t size; };

static size_t add(struct part *p, const void *bytes, size_t size)
{
	p->bytes = realloc(p->bytes, p->size + size);
	memcpy(p->bytes + p->size, bytes, size);
	p->size += size;
	return p->size - size;
}

struct elf { struct part data, sections, names, strings, symbols; };

/* named adds the name of a section. */
static size_t named(struct elf *e, const char *prefix, const char *name)
{
	size_t at = add(&e->names, prefix, strlen(prefix));

	add(&e->names, name, strlen(name) + 1);
	return at;
}

static void section(struct elf *e, size_t name, unsigned type, unsigned link, const void *bytes, size_t size)
{
	Elf64_Shdr h = {.sh_name = name, .sh_type = type, .sh_link = link, .sh_size = size, .sh_addralign = 1};

	while (e->data.size % 8)
		add(&e->data, "", 1);
	h.sh_offset = sizeof(Elf64_Ehdr) + e->data.size;
	if (type != SHT_NOBITS)
		add(&e->data, bytes, size);
	h.sh_entsize = type == SHT_SYMTAB ? sizeof(Elf64_Sym) : 0;
	add(&e->sections, &h, sizeof h);
}

enum { CUDA_MACHINE = 190, CUDA_ENTRY = 0x10, CUDA_MANAGED = 4, SIZED = 4, PARAMETER = 0x17, IN_BANK = 0x1f000 };

static void kernel(struct elf *e, const struct kernel *k)
{
	struct part info = {0};
	size_t known[MOST], offset = 0;
	char *name = type_lowered(k);
	Elf64_Sym s = {.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_other = CUDA_ENTRY};

	section(e, named(e, ".text.", name), SHT_PROGBITS, 0, "\0\0\0\0\0\0\0", 8);
	s.st_shndx = e->sections.size / sizeof(Elf64_Shdr) - 1;
	s.st_name = add(&e->strings, name, strlen(name) + 1);
	add(&e->symbols, &s, sizeof s);
	if (sizes(k, known)) {
		for (int n = 0; n < k->nparameters; n++) {
			struct { uint8_t format, what; uint16_t size; uint32_t index; uint16_t ordinal, offset; uint32_t bits; } p = {SIZED, PARAMETER, 12, 0, n, 0, 0};

			offset = (offset + type_align(known[n]) - 1) / type_align(known[n]) * type_align(known[n]);
			p.offset = offset;
			p.bits = known[n] << 18 | IN_BANK;
			offset += known[n];
			add(&info, &p, sizeof p);
		}
		section(e, named(e, ".nv.info.", name), SHT_PROGBITS, 0, info.bytes ? info.bytes : "", info.size);
	}
	free(info.bytes);
	free(name);
}

/* variable adds one, in a section of its own. */
static void variable(struct elf *e, const struct variable *v)
{
	char *name = type_symbol(v);
	Elf64_Sym s = {.st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT), .st_other = v->managed ? CUDA_MANAGED : 0, .st_size = v->size};

	section(e, named(e, v->constant ? ".nv.constant3" : v->bytes ? ".nv.global.init" : ".nv.global", ""),
		v->bytes ? SHT_PROGBITS : SHT_NOBITS, 0, v->bytes ? v->bytes : "", v->size);
	s.st_shndx = e->sections.size / sizeof(Elf64_Shdr) - 1;
	s.st_name = add(&e->strings, name, strlen(name) + 1);
	add(&e->symbols, &s, sizeof s);
	free(name);
}

char *image_cubin(const struct source *s, int arch, size_t *size)
{
	struct elf e = {0};
	struct part all = {0};
	size_t name;
	Elf64_Ehdr h = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT}, .e_type = ET_EXEC, .e_machine = CUDA_MACHINE,
		.e_version = EV_CURRENT, .e_flags = arch, .e_ehsize = sizeof h, .e_shentsize = sizeof(Elf64_Shdr)};

	add(&e.sections, &(Elf64_Shdr){0}, sizeof(Elf64_Shdr));
	add(&e.names, "", 1);
	add(&e.strings, "", 1);
	add(&e.symbols, &(Elf64_Sym){0}, sizeof(Elf64_Sym));
	for (int i = 0; i < s->n; i++)
		if (whole(&s->kernels[i]))
			kernel(&e, &s->kernels[i]);
	for (int i = 0; i < s->nvariables; i++)
		if (placed(s, &s->variables[i]))
			variable(&e, &s->variables[i]);
	section(&e, named(&e, ".strtab", ""), SHT_STRTAB, 0, e.strings.bytes, e.strings.size);
	h.e_shnum = e.sections.size / sizeof(Elf64_Shdr);
	section(&e, named(&e, ".symtab", ""), SHT_SYMTAB, h.e_shnum - 1, e.symbols.bytes, e.symbols.size);
	h.e_shstrndx = h.e_shnum + 1;
	name = named(&e, ".shstrtab", "");
	section(&e, name, SHT_STRTAB, 0, e.names.bytes, e.names.size);
	h.e_shnum += 2;
	while (e.data.size % 8)
		add(&e.data, "", 1);
	h.e_shoff = sizeof h + e.data.size;
	add(&all, &h, sizeof h);
	add(&all, e.data.bytes, e.data.size);
	add(&all, e.sections.bytes, e.sections.size);
	free(e.data.bytes), free(e.sections.bytes), free(e.names.bytes), free(e.strings.bytes), free(e.symbols.bytes);
	*size = all.size;
	return all.bytes;
}
