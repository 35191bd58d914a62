package postgres

// keyFunctionDefinition is drivers.SortKey in the database. It is PL/pgSQL so that plans do not contain its expanded
// text. A number beyond the range of doubles counts as the largest, and one too near to zero as zero, so that no
// document fails to be saved.
const keyFunctionDefinition = `create function ` + keyFunction + `(value jsonb) returns text
language plpgsql immutable parallel safe cost 20 as $$
declare
	word   text;
	number numeric;
	size   numeric;
	key    text;
begin
	case jsonb_typeof(value)
	when 'string' then
		word := value #>> '{}';
		if char_length(word) <= 250 then
			return '3' || word;
		end if;
		return '6';
	when 'number' then
		number := value::numeric;
		size := abs(number);
		if size > 1.7976931348623157e308 then
			size := 1.7976931348623157e308;
		elsif size <= 2.4703282292062328e-324 then
			number := 0;
			size := 0;
		end if;
		key := encode(float8send(size::float8), 'hex');
		if size >= 9007199254740992 then
			key := key || lpad(trunc(least(size, 9223372036854775808))::text, 19, '0');
		end if;
		if number < 0 then
			return '1' || translate(key, '0123456789abcdef', 'fedcba9876543210');
		end if;
		return '2' || key;
	when 'boolean' then
		return case when value = 'true'::jsonb then '5' else '4' end;
	when 'array', 'object' then
		return '6';
	else
		return '0';
	end case;
end
$$`
