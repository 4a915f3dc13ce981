# A guest of one boot sector: it says that it is up, counts on its serial console, five times a
# second, and powers off when the power button is pressed or a byte comes on the console. It fills
# some memory first, so that a migration has something to copy.
.intel_syntax noprefix
.code16
.equ SERIAL, 0x3f8
.equ LINE_STATUS, SERIAL + 5
.equ DATA_READY, 1
# Of q35 and i440fx, where SeaBIOS puts it: status, enable (+2), control (+4).
.equ POWER, 0x600
.equ POWER_BUTTON, 1 << 8
# Sleep now, of type 0: off.
.equ OFF, 1 << 13
.equ FILLED_FROM, 1 << 20
.equ FILLED, 64 << 20
# The timer interrupts 18 times a second.
.equ INTERRUPTS, 4

.globl _start
_start:
    cli
    xor ax, ax
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov sp, 0x7c00
    # Segments without a limit: once loaded in protected mode, they keep it.
    lgdt [gdt_register]
    mov eax, cr0
    or al, 1
    mov cr0, eax
    mov bx, 8
    mov es, bx
    and al, 0xfe
    mov cr0, eax
    xor bx, bx
    mov es, bx
    mov edi, offset FILLED_FROM
    mov ecx, offset FILLED / 4
    mov eax, 0x6e756f63
    cld
    rep stos dword ptr es:[edi], eax

    mov dx, offset POWER + 2
    mov ax, offset POWER_BUTTON
    out dx, ax
    mov si, offset up
    call print
    xor ebx, ebx
next:
    mov cx, offset INTERRUPTS
await:
    sti
    hlt
    mov dx, offset POWER
    in ax, dx
    and ah, [obeys]
    jnz off
    mov dx, offset LINE_STATUS
    in al, dx
    # All ones: there is no port.
    cmp al, 0xff
    je nothing
    test al, DATA_READY
    jnz off
nothing:
    loop await
    inc ebx
    mov si, offset text
    call print
    # Decimal digits, from the last one.
    mov eax, ebx
    mov di, offset digits_end
    mov ecx, 10
digit:
    xor edx, edx
    div ecx
    add dl, '0'
    dec di
    mov [di], dl
    test eax, eax
    jnz digit
    mov si, di
    call print
    jmp next

print:
    lodsb
    test al, al
    jz printed
    mov dx, offset SERIAL
    out dx, al
    jmp print
printed:
    ret

off:
    mov dx, offset POWER + 4
    mov ax, offset OFF
    out dx, ax
halt:
    hlt
    jmp halt

gdt_register:
    .word gdt_end - gdt - 1
    .long gdt
.balign 8
gdt:
    .quad 0, 0x00cf92000000ffff
gdt_end:
up:
    .asciz "virt-launcher test guest is up\r\n"
text:
    .asciz "tick "
digits:
    .fill 10, 1, 0
digits_end:
    .asciz "\r\n"

.org 509
# 0: it ignores the power button.
obeys:
    .byte POWER_BUTTON >> 8
    .word 0xaa55
