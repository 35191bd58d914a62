-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
-- @to int64: 9
-- @from int64: 5
set nocount on;
set lock_timeout 10000;
set xact_abort on;
begin transaction;
update t set version = @to from manifold_documents.[documents] as t with (updlock, rowlock) where t.tenant_id = @tenant and t.build = @build and t.id_bytes = 0x and t.version = @from;
if @@rowcount = 1
begin
commit transaction;
select 1;
end
else
begin
rollback transaction;
select 0;
end;
